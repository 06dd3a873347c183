"""The device of a process, from the setting `device` and the launcher's local rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data.errors import UserError
from zoo.trainer.protocol import Launch


@dataclass(frozen=True)
class Device:
    """Device of a process: type ("cpu", "cuda", "npu") and index among the visible devices of this type."""

    type: str
    index: int = 0

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"


def select_device(
    setting: str, launch: Launch, accelerators: Sequence[str], count: Callable[[str], int], framework: str
) -> Device:
    """Return the device that a process uses.

    Args:
        setting: auto, cpu, or an accelerator's type with or without an index, such as cuda or cuda:1.
        launch: this process. Each of several takes the device of its local rank, unless the launcher shows it only one.
        accelerators: types that the framework supports; `auto` takes the first that is present.
        count: type -> number of visible devices.
        framework: its name for messages.

    Raises:
        UserError: the setting is malformed, or the device is not present.
    """
    if setting == "auto":
        setting = next((kind for kind in accelerators if count(kind)), "cpu")
    kind, _, index = setting.partition(":")
    if setting == "cpu":
        return Device("cpu")
    if kind not in accelerators or (index and not index.isdigit()):
        forms = ["auto", "cpu", *(form for kind in accelerators for form in (kind, f"{kind}:N"))]
        raise UserError(f"device: expected {', '.join(forms[:-1])} or {forms[-1]}, got {setting!r}")
    if launch.size > 1 and count(kind) > 1:
        index = str(launch.local_rank)
    device = Device(kind, int(index or 0))
    if device.index >= count(kind):
        raise UserError(
            f"device: there is no {device} here ({kind} devices that {framework} finds: {count(kind)}); "
            "use --device cpu"
        )
    return device
