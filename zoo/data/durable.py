"""Files and folders that are on the disk, with their names, when a function returns: a power cut does not undo them.

A folder that is written to may come from somebody else, with links in it. `fresh` and `regular`, for `opener` of
`open()`, never write through a link whose name is that of a file; folders may be links.
"""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any

UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # file systems without locks


def fresh(path: str, flags: int) -> int:
    """Open a file that is written from the start: in place of the file or link that has its name."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            os.unlink(path)
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def regular(path: str, flags: int) -> int:
    """Open a file that goes on, such as a journal or a lock. Raises OSError if it is a link, or no regular file."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)  # which does not wait at a pipe
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{path} is a link, which is not followed; remove it", path) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, f"{path} is not a regular file; remove it", path)


def write(path: str, content: bytes) -> None:
    """Write a file. Its name in the folder is not on the disk yet."""
    with open(path, "wb", opener=fresh) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace(path: str, content: bytes, temporary: str) -> None:
    """Write a file completely or not at all."""
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


def new_folder(paths: Iterable[str], mode: int = 0o777) -> str:
    """Make the first folder whose path nothing has yet, and return it: no other process gets the same one."""
    for path in paths:
        make_folders(os.path.dirname(os.path.abspath(path)))
        with suppress(FileExistsError):
            os.mkdir(path, mode)
            sync_folder(os.path.dirname(path))
            return path
    raise FileExistsError(errno.EEXIST, "all paths are taken")


def lock(file: IO[Any], wait: bool = False) -> None:
    """Lock a file until it is closed; a file system or system without locks locks nothing.

    Args:
        wait: for another process that holds the lock.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: it cannot be locked.
    """
    try:
        import fcntl  # not at the top: Windows lacks it
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def sync_folder(folder: str) -> None:
    """Bring new, renamed and removed names in a folder to the disk."""
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
