"""Files and folders that are on the disk, with their names, when a function returns: a power cut does not undo them."""

import os


def write(path: str, content: bytes) -> None:
    """Write a file. Its name in the folder is not on the disk yet."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace(path: str, content: bytes, temporary: str) -> None:
    """Write a file completely or not at all.

    Args:
        path: of the file.
        content: its bytes.
        temporary: path in the same folder to write to first.
    """
    write(temporary, content)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def make_folders(path: str) -> None:
    """Make a folder, and those above it that are missing."""
    path = os.path.abspath(path)
    parent = os.path.dirname(path)
    if os.path.isdir(path):
        return
    make_folders(parent)
    os.makedirs(path, exist_ok=True)  # another process may be faster
    sync_folder(parent)


def sync_folder(folder: str) -> None:
    """Bring new, renamed and removed names in a folder to the disk."""
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
