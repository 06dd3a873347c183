"""The regular files that tar and zip archives hold, and where their bytes lie."""

import os
import posixpath
import stat
import tarfile
import zipfile
from typing import BinaryIO, NamedTuple

STORED = -1  # in place of the bytes of a compressed file
READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1  # flag of a file in a zip archive
MAX_NAME, MAX_LINKS = 4096, 40
MAX_UNPACKED = 1 << 30  # bytes of a compressed file, which is unpacked in memory
END = 2 * tarfile.BLOCKSIZE  # bytes of zeros behind the last file of a tar archive, some writers give half of them ...
MAX_KEPT = 64  # bytes of a file that is kept with the list, such as a label: to ask for each by itself takes hours
MAX_RECORD = 1 << 20  # ... and others fill a record, of tarfile.RECORDSIZE or, as with `tar -b`, up to this


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        offset: of its bytes in a tar archive, of the header before them in a zip archive.
        packed: bytes that it takes there, STORED if it is not compressed.
        checksum: CRC-32 in a zip archive, -1 in a tar archive, which has none.
        content: of a small file in a tar archive.
    """

    name: str
    offset: int
    size: int
    packed: int = STORED
    checksum: int = -1
    content: bytes = b""


def _checked(name: str) -> str:
    """Return a name without empty parts. Raises ValueError if it leads out of the archive, or is too long."""
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"the name {name[:MAX_NAME]} leads out of it")
    if len(name) > MAX_NAME:
        raise ValueError(f"a name has {len(name)} characters")
    return posixpath.normpath(name)


def list_tar(file: BinaryIO) -> list[Member]:
    """Return the files of a tar archive as tar would unpack them: what comes later replaces what has the same name."""
    found, links = dict[str, Member](), dict[str, str]()
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # which tarfile would keep
            name = posixpath.normpath(member.name)
            if member.issparse():
                raise ValueError(f"{name} is stored sparsely")
            target = posixpath.normpath(member.linkname)
            if member.isreg():
                content = b""
                if member.size <= MAX_KEPT:
                    file.seek(member.offset_data)
                    content = file.read(member.size)
                found[name] = Member(member.name, member.offset_data, member.size, content=content)
                links.pop(name, None)
            elif member.islnk() and target in found:
                found[name] = found[target]._replace(name=name)
                links.pop(name, None)
            elif member.islnk() or member.issym():
                beside = os.path.dirname(name) if member.issym() else ""
                links[name] = posixpath.normpath(posixpath.join(beside, target))
                found.pop(name, None)
        _check_end(file, archive.offset)
    return _resolved(found, links)


def _check_end(file: BinaryIO, end: int) -> None:
    """Raise ValueError unless a tar archive ends where tarfile stops, which does so without a word at any damage."""
    size = file.seek(0, os.SEEK_END)
    file.seek(end)
    rest = file.read(END + MAX_RECORD)
    if rest[: tarfile.BLOCKSIZE].strip(b"\0"):
        raise ValueError(f"it is damaged at byte {end}")
    if rest.strip(b"\0"):
        raise ValueError(f"it goes on behind its end at byte {end}, as joined archives do; join them by tar -A")
    if len(rest) < tarfile.BLOCKSIZE:
        raise ValueError(f"it is cut: no zeros mark its end at byte {end}; copy or pack it again")
    if size - end >= END + max(tarfile.RECORDSIZE, min(size & -size, MAX_RECORD)):  # records of 2**n bytes fill it
        raise ValueError(f"it has {size - end} zeros from byte {end} on, as if cut there; copy or pack it again")


def _resolved(found: dict[str, Member], links: dict[str, str]) -> list[Member]:
    """Return the files, and for links those that they lead to. Raises ValueError for a name that cannot be."""
    members = list(found.values())
    for name in links:
        target = name
        for _ in range(MAX_LINKS):
            target = links.get(target, target)
        if target not in found:
            remedy = "pack what it leads to (tar --dereference, zip without -y)"
            raise ValueError(f"{name} is a link to {links[name]}, which is no file in it; {remedy}")
        members.append(found[target]._replace(name=name))
    return [member._replace(name=_checked(member.name)) for member in members]


def list_zip(file: BinaryIO) -> list[Member]:
    """Return the files of a zip archive. Raises ValueError if one cannot be read in place."""
    found, links = dict[str, Member](), dict[str, str]()
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if info.compress_type not in READABLE or info.flag_bits & ENCRYPTED:
                raise ValueError(f"{info.filename} is encrypted, or compressed by another method than deflate")
            packed = STORED if info.compress_type == zipfile.ZIP_STORED else info.compress_size
            if packed != STORED and info.file_size > MAX_UNPACKED:
                raise ValueError(f"{info.filename} has {info.file_size} bytes, compressed; store it as it is (zip -0)")
            path = info.filename.replace("\\", "/")
            name = posixpath.normpath(path)
            found.pop(name, None)
            links.pop(name, None)
            if stat.S_ISLNK(info.external_attr >> 16) and info.file_size <= MAX_NAME:
                target = os.fsdecode(archive.read(info))
                links[name] = posixpath.normpath(posixpath.join(os.path.dirname(name), target))
            else:
                found[name] = Member(path, info.header_offset, info.file_size, packed, info.CRC)
    return _resolved(found, links)
