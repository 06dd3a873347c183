"""Images in tables, parquet and Arrow files as Hugging Face's `datasets` writes them, unpacked into tar archives.

Such files compress many rows as one, so none can be read alone. A table is unpacked once: into folders of classes, or
images/ and masks/. Numbers of labels are kept, by a file of class names in their order.
"""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from zoo.data import addresses
from zoo.data.errors import UserError, parsing
from zoo.data.extras import parquet, pyarrow
from zoo.data.formats.file_names import IMAGE_EXTENSIONS, VIDEO_EXTENSIONS, is_hidden, split_of

TABLES = (".parquet", ".arrow")
MASKS = ("mask", "masks", "annotation", "annotations", "segmentation", "segmentation_mask", "label", "labels")
LABELS = ("label", "labels", "class", "target")
ROWS = 32  # that are in memory at once
ARROW_FILE = b"ARROW1"  # how one begins that is no stream


class Columns(NamedTuple):
    """Columns of a table that are read, None for those that it lacks.

    Attributes:
        names: of the classes, by the number in `label`; empty if it holds the names, or nothing says them.
    """

    image: str
    mask: str | None
    label: str | None
    names: tuple[str, ...]


def unpack(paths: Sequence[str], sizes: Sequence[int], folder: str) -> list[str]:
    """Unpack tables into tar archives in a folder, unless they are there, and return the paths of all archives.

    Args:
        paths: of tables and archives; the latter are returned as they are.
        sizes: of these files, in bytes.
    """
    tables = [n for n, path in enumerate(paths) if path.endswith(TABLES)]
    archives = list(paths)
    for n in tables:
        archives[n] = os.path.join(folder, f"{n}", _archive_name(paths[n]))
    missing, texts = [n for n in tables if not os.path.isfile(archives[n])], dict[str, str]()
    os.makedirs(folder, exist_ok=True)
    if (needed := sum(sizes[n] for n in missing)) > shutil.disk_usage(folder).free:
        raise UserError(f"{folder}: unpacked tables need {needed} bytes; make room, or set ZOO_HOME to another folder")
    for n in missing:
        print(f"unpacking {paths[n]} to {archives[n]}, this once ...", flush=True)
        os.makedirs(os.path.dirname(archives[n]), exist_ok=True)
        _unpack(paths[n], f"{archives[n]}.part", texts)
        os.rename(f"{archives[n]}.part", archives[n])
    classes = os.path.join(folder, "classes.tar")
    if tables and not os.path.isfile(classes):
        _write_classes(classes, paths[tables[0]], [archives[n] for n in tables])
    return [*archives, classes] if os.path.isfile(classes) else archives


def _archive_name(path: str) -> str:
    """Return a name that states the split as the table does, by its own name or that of its folder."""
    folder, name = os.path.split(os.path.splitext(path)[0])
    split = split_of(os.path.basename(folder))
    return f"{name}.tar" if split_of(name) or not split else f"{split}-{name}.tar"


def _unpack(path: str, out: str, texts: dict[str, str]) -> None:
    with open(out, "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in members(path, texts):
                _add(archive, name, content)
        file.flush()
        os.fsync(file.fileno())


def members(path: str, texts: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a table, a row after the other: their paths and contents. Raises UserError.

    Args:
        texts: labels of this and other tables by their folders; extended.
    """
    stem = os.path.splitext(os.path.basename(path))[0]
    with _opened(path) as (schema, batches):
        columns = choose(path, schema)
        rows = (row for batch in batches([name for name in columns[:3] if name]) for row in batch.to_pylist())
        for number, row in enumerate(rows):
            where, name = f"{path}: row {number}", f"{stem}-{number:07d}"
            content, extension = _file(row[columns.image], where, ".mp4" if columns.image == "video" else ".jpg")
            if columns.mask:
                yield f"images/{name}{extension}", content
                yield f"masks/{name}.png", _file(row[columns.mask], where, "")[0]
            else:
                folder = f"{_folder(row[columns.label], columns.names, where, texts)}/" if columns.label else ""
                yield f"{folder}{name}{extension}", content


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _file(value: Any, where: str, usual: str) -> tuple[bytes, str]:
    """Return the bytes of a file in a table, none for null, and the extension of its path, or the usual one."""
    content, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
    if not content and path:
        raise UserError(f"{where} has no bytes of an image, only the path {path}")
    extension = os.path.splitext((path or "").partition("?")[0])[1].lower()  # of any image: contents count
    return content or b"", extension if extension in (*IMAGE_EXTENSIONS, *VIDEO_EXTENSIONS) else usual


def _folder(label: Any, names: Sequence[str], where: str, texts: dict[str, str]) -> str:
    if isinstance(label, int) and names:
        if not 0 <= label < len(names):
            return str(label)  # -1: what is not labeled
        label = names[label]
    if label is None or label == "":
        raise UserError(f"{where} has no label")
    text = str(label)
    folder = as_name(text)
    if texts.setdefault(folder, text) != text:
        raise UserError(f"{where}: its label {text!r} and {texts[folder]!r} have the same name; correct one of them")
    return folder


def as_name(text: str) -> str:
    """Return text as the name of a folder that is not hidden."""
    text = "_".join(text.splitlines()).strip().replace("/", "_")
    return f"_{text[1:]}" if is_hidden(text) else text


def _write_classes(out: str, table: str, archives: Iterable[str]) -> None:
    """Write an archive with classes.txt, in the order of the labels, unless labels are names or there are none."""
    with _opened(table) as (schema, _):
        names = list(map(as_name, choose(table, schema).names))
    if len(set(names)) < len(names):
        raise UserError(f"{table}: two of its classes have the same name")
    if not names:
        folders = set[str]()
        for path in archives:
            with tarfile.open(path) as archive:
                folders |= {os.path.dirname(name) for name in archive.getnames()}
        numbers = [int(folder) for folder in folders if folder.isdecimal()]
        names = list(map(str, range(max(numbers) + 1))) if numbers and len(numbers) == len(folders) else []
    if names:
        with tarfile.open(f"{out}.part", "w") as archive:
            _add(archive, "classes.txt", "".join(f"{name}\n" for name in names).encode())
        os.rename(f"{out}.part", out)


def choose(path: str, schema: Any) -> Columns:
    """Choose the columns of a table by their types, what `datasets` wrote of them, and their names.

    Raises:
        UserError: there is no column of images, or several columns could be meant.
    """
    files = [field.name for field in schema if _holds_files(field.type)]
    mask = next((name for name in files if name in MASKS), None) if len(files) > 1 else None
    image = _only(path, "images", [name for name in files if name != mask], ("image", "img", "video"))
    if image is None:
        raise UserError(f"{path}: has no column of images, but {', '.join(schema.names)}")
    if mask:
        return Columns(image, mask, None, ())
    written = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    classes = {name: written[name]["names"] for name in written if _is_class(written[name])}
    others = [field.name for field in schema if _is_label(field.type)]
    label = _only(path, "labels", list(classes) or [name for name in others if name in LABELS], LABELS)
    return Columns(image, None, label, tuple(classes.get(label, ())))


def _only(path: str, what: str, names: Sequence[str], preferred: Sequence[str]) -> str | None:
    best = [name for name in preferred if name in names][:1] or names
    if len(best) > 1:
        raise UserError(f"{path}: {', '.join(best)} are columns of {what}; rename the one to read to {preferred[0]}")
    return best[0] if best else None


def _holds_files(kind: Any) -> bool:
    if pyarrow.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)


def _is_label(kind: Any) -> bool:
    types = pyarrow.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(
        check(kind) for check in (types.is_integer, types.is_string, types.is_large_string, types.is_string_view)
    )


def _is_class(feature: Any) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list)


@contextmanager
def _opened(path: str) -> Iterator[tuple[Any, Any]]:
    """Open a table: give its schema, and a function that yields record batches of some columns."""
    with parsing(f"{path}: cannot be read", "it should be a parquet or Arrow file"), addresses.open_file(path) as file:
        if path.endswith(".parquet"):
            table = parquet.ParquetFile(file)
            yield table.schema_arrow, lambda names: table.iter_batches(ROWS, columns=names, use_threads=False)
            return
        is_stream = file.read(len(ARROW_FILE)) != ARROW_FILE
        file.seek(0)
        reader = pyarrow.ipc.open_stream(file) if is_stream else pyarrow.ipc.open_file(file)
        batches = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
        yield reader.schema, lambda names: (_checked(batch.select(names)) for batch in batches)


def _checked(batch: Any) -> Any:
    """Return a batch of an Arrow file, whose offsets may lead anywhere: its reader does not check them."""
    batch.validate(full=True)
    return batch
