"""Memory and power of a run, for its event `train`."""

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.logs import power
from zoo.logs.host_memory import HostMemory
from zoo.logs.power import PowerMeter
from zoo.trainer.world import World


class Resources:
    """What this rank uses.

    Args:
        world: the framework's, for the memory of the device.
        is_first_of_host: whether this rank measures what all ranks of its host share.
    """

    def __init__(self, world: World, is_first_of_host: bool):
        self._world, self._memory = world, HostMemory()
        self._power = PowerMeter(world.cuda_index, is_first_of_host)

    def read(self) -> dict[str, Any]:
        """Return this rank's peaks of memory so far, and its power since the last call."""
        return {"host": self._memory.read(), "device": self._world.peak_memory(), "power": self._power.read()}


def combine(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of the event `train`. ranks: what `Resources.read` returns on each."""
    return {
        "host_memory_bytes": sum(rank["host"] for rank in ranks),
        "device_memory_bytes": max((rank["device"] for rank in ranks if rank["device"] is not None), default=None),
        "power": power.combine([rank["power"] for rank in ranks]),
    }
