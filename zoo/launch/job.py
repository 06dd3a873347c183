"""A run as a batch system starts it: name, size, resources, environment and volumes."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from zoo.data.errors import UserError

IMAGE_FOLDER = "/opt/vision-zoo"  # of this project in container images: the WORKDIR of environments/*.Dockerfile
NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
MAX_NAME = 40  # characters; Kubernetes appends to it, up to 63
TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d\d))?(?::(\d\d))?")


class Volume(NamedTuple):
    """Something to mount into containers. source: a folder of the host, or a PersistentVolumeClaim."""

    source: str
    path: str
    read_only: bool


class Job(NamedTuple):
    """What a batch system starts."""

    name: str
    hosts: int
    processes_per_host: int
    gpus_per_host: int
    cpus_per_process: int | None  # None: all cores of whole hosts
    seconds: int | None  # time limit
    image: str | None
    volumes: list[Volume]
    variables: dict[str, str]
    train_arguments: list[str]

    @property
    def size(self) -> int:
        return self.hosts * self.processes_per_host


def job_name(name: str | None, recipe: str, world: str) -> str:
    """Return the name of a job, by default that of its recipe and world size, such as tsm-k400-4x8.

    Raises:
        UserError: Kubernetes would not accept the name.
    """
    if name is None:
        stem = re.sub(r"[^a-z0-9]+", "-", recipe.lower()).strip("-")
        name = f"{stem[: MAX_NAME - len(world) - 1].rstrip('-')}-{world.lower()}"
        name = name if name[0].isalpha() else f"run-{name}"[:MAX_NAME]
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise UserError(
            f"--name {name}: expected at most {MAX_NAME} lower-case letters, digits and -, a letter first and no - last"
        )
    return name


def seconds(text: str | None) -> int | None:
    """Return the seconds of a time limit in SLURM's forms: MINUTES, [DAYS-]HOURS:MINUTES:SECONDS, DAYS-HOURS[:MINUTES].

    Raises:
        UserError: The text has none of these forms.
    """
    if text is None:
        return None
    match = TIME.fullmatch(text)
    if not match:
        raise UserError(
            f"--time {text}: expected minutes, hours:minutes:seconds or days-hours, such as 12:00:00 or 2-12"
        )
    days, *numbers = [int(number) if number else None for number in match.groups()]
    parts = [number for number in numbers if number is not None]
    if days is None and len(parts) < 3:  # minutes, minutes:seconds
        parts.insert(0, 0)
    parts += [0] * (3 - len(parts))
    total = (days or 0) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
    if not total:
        raise UserError(f"--time {text}: must be more than 0")
    return total


def volumes(texts: Sequence[str]) -> list[Volume]:
    """Return the values of --volume, SOURCE:PATH or SOURCE:PATH:ro.

    Raises:
        UserError: A value has another form, or two have the same path.
    """
    found: list[Volume] = []
    for text in texts:
        source, _, rest = text.partition(":")
        path, _, mode = rest.partition(":")
        if not source or not path.startswith("/") or mode not in ("", "ro") or re.search(r"[\s,]", text):
            raise UserError(f"--volume {text}: expected SOURCE:PATH or SOURCE:PATH:ro, with an absolute PATH")
        if any(volume.path == path for volume in found):
            raise UserError(f"--volume {text}: {path} is mounted already")
        found.append(Volume(source, path, mode == "ro"))
    return found


def check_out(out: str, mounted: Sequence[Volume]) -> None:
    """Check that the folder of the run outlives the containers.

    Args:
        out: folder of the run; relative to the project's folder in the image.
        mounted: volumes of the containers.

    Raises:
        UserError: It is not on a volume that can be written to.
    """
    folder = PurePosixPath(IMAGE_FOLDER) / out
    if not any(folder.is_relative_to(volume.path) for volume in mounted if not volume.read_only):
        raise UserError(
            f"the run would be written to {folder} in the container and be lost with it; "
            "mount a volume, such as --volume CLAIM:/runs, and give --out /runs/NAME"
        )
