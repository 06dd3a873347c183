"""The common trainer interface (protocol.py) and its three implementations, a folder per framework."""

from types import ModuleType

from zoo.frameworks import FRAMEWORKS, import_for


def load_backend(framework: str) -> ModuleType:
    """Import zoo.trainer.<framework>, which offers `start(launch, device, port) -> World`, `Trainer` and more.

    Raises:
        UserError: there is no such framework, or it is not installed.
    """
    return import_for(framework, f"zoo.trainer.{framework}", FRAMEWORKS, "the trainer")
