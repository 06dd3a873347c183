"""Writers of small files, and what an attacker pickles."""

import os


def write_list(folder, content, name="train.list"):
    """Write text or bytes to a file and return its path."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def touch(root, *paths, content=b"x"):
    """Create files and their folders below a root."""
    for path in paths:
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "wb") as file:
            file.write(content)


class Call:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call
