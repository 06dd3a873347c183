"""Data sets in folders, archives and at addresses, of which tests of sources are made."""

import os
import tarfile
import zipfile

import fsspec

from tests.helpers import clips, layouts
from tests.helpers.face_sets import write_set
from tests.helpers.prepared import image_folders, prepare


def write_folder(root, name):
    """Write a set of a kind in folders."""
    if name == "prepared clips":
        prepare("folder", write_folder(root.with_name("source"), "clip"), "--out", root, "--pack")
        return root
    root.mkdir()
    if name == "image":
        image_folders(root)
    elif name == "clip":
        for split, count in (("train", 4), ("val", 2)):
            for number in range(count):
                folder = root / split / ("left", "right")[number % 2]
                folder.mkdir(parents=True, exist_ok=True)
                clips.encode(folder / f"{number}.mp4", clips.textured(8 + number))
    elif name == "scene":
        layouts.scenes(root)
    else:
        write_set(root, "folder" if name == "face folders" else "rec")
    return root


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def tar(folder, out, names=None, prefix=""):
    with tarfile.open(out, "w") as archive:
        for name in files_below(folder) if names is None else names:
            archive.add(folder / name, f"{prefix}{name}")
    return str(out)


def zipped(folder, out, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(out, "w", method) as archive:
        for name in files_below(folder):
            archive.write(folder / name, name)
    return str(out)


def shards(folder, out):
    """Write three archives, each with every third file; return the pattern of their names."""
    out.mkdir()
    for number in range(3):
        tar(folder, out / f"{number:02d}.tar", files_below(folder)[number::3])
    return f"{out}/{{00..02}}.tar"


def uploaded(folder, address):
    fsspec.filesystem(address.partition(":")[0]).put(f"{folder}/", address, recursive=True)
    return address


CONTAINERS = {
    "tar": lambda folder, out: tar(folder, out / "set.tar", prefix="./"),
    "shards": lambda folder, out: shards(folder, out / "shards"),
    "zip": lambda folder, out: zipped(folder, out / "set.zip"),
    "deflated": lambda folder, out: zipped(folder, out / "set.zip", zipfile.ZIP_DEFLATED),
    "address": lambda folder, out: uploaded(folder, f"memory://{out.name}/set"),
    "tar at an address": lambda folder, out: (
        uploaded(os.path.dirname(CONTAINERS["shards"](folder, out)), f"memory://{out.name}/shards") + "/*.tar"
    ),
}
