"""A framework on a device: whether it starts, its libraries and its precisions; run in a child process."""

from importlib import metadata

from zoo.data.errors import UserError
from zoo.doctor.worker import Tell, first_line
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode
from zoo.trainer.world import Launch

PRECISIONS = ("fp32", "fp64", "fp16", "bf16", "amp")


def probe(tell: Tell, framework: str, device: str) -> None:
    """Tell what the framework says.

    Facts: `installed`, the version of the package; `version`, `libraries` and `device` (World), `kind`, the device's
    type; `modes`, precision -> the 16-bit type that it stands for; `refused`, precision -> why there is none.
    """
    tell(stage=f"importing {framework}", installed=_installed(framework))
    backend = load_backend(framework)
    tell(stage=f"starting on {device}")
    world = backend.start(Launch(), device)
    kind = world.device.partition(" ")[0].partition(":")[0]
    tell(version=world.version, libraries=world.libraries(), device=world.device, kind=kind)
    tell(stage="choosing precisions")
    modes, refused = {}, {}
    for precision in PRECISIONS:
        try:
            modes[precision] = world.resolve_mode(Mode(precision)).compute
        except UserError as error:
            refused[precision] = first_line(error)
    tell(modes=modes, refused=refused)


def _installed(framework: str) -> str | None:
    """Return the version of the package that provides a framework: of torch 2.13.0+cpu, not 2.13.0."""
    names = metadata.packages_distributions().get(framework, ())
    return metadata.version(names[0]) if names else None
