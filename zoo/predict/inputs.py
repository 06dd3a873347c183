"""The files that the arguments of a command line stand for: files, folders of files, folders of numbered frames."""

import os
from collections.abc import Iterator, Sequence

from zoo.predict.results import Failure


def find_inputs(
    arguments: Sequence[str], extensions: tuple[str, ...], frame_template: str | None
) -> tuple[list[str], list[Failure]]:
    """List the inputs of a model.

    Args:
        arguments: files, which are taken whatever their extension, and folders, which are searched.
        extensions: in lower case, of the files to take from folders.
        frame_template: name of a frame, such as `img_{:05d}.jpg`, where a folder of frames is one input.

    Returns:
        The paths, and a failure for each argument that stands for none.
    """
    paths: list[str] = []
    failures: list[Failure] = []
    for argument in arguments:
        if os.path.isdir(argument):
            matches = list(walk_inputs(argument, extensions, frame_template))
            reason = f"nothing in this folder ends in {', '.join(extensions)}"
        else:
            matches = [argument] if os.path.exists(argument) else []
            reason = "no such file"
        paths += matches
        if not matches:
            failures.append(Failure(argument, reason))
    return paths, failures


def walk_inputs(folder: str, extensions: tuple[str, ...], frame_template: str | None) -> Iterator[str]:
    """Yield the inputs in a folder and below in the order of their names, hidden ones left out."""
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if count_frames(path, frame_template):
            yield path
        for name in sorted(names):
            if name.lower().endswith(extensions) and not name.startswith("."):
                yield os.path.join(path, name)


def count_frames(folder: str, frame_template: str | None) -> int:
    """Count the files of a folder that are numbered by a template; 0 without a template or a folder."""
    if frame_template is None or not os.path.isdir(folder):
        return 0
    prefix, suffix = frame_template.partition("{")[0], frame_template.rpartition("}")[2]
    return sum(
        name.startswith(prefix) and name.endswith(suffix) and name[len(prefix) : len(name) - len(suffix)].isdecimal()
        for name in os.listdir(folder)
    )
