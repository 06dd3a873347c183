"""Where the images of labels lie: in or below the folder of the labels, or beside a folder that is for labels alone."""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from zoo.data.errors import BadSample
from zoo.data.formats.file_names import is_hidden, split_of
from zoo.data.formats.images import EXTENSIONS
from zoo.data.importing.scenes import below

LABEL_FOLDERS = re.compile("annotations?|anns?|labels?|labelme|coco|json", re.IGNORECASE)  # beside those of the images
MAX_DEPTH = 4  # of folders that are searched: labels may lie in a home folder


def find_images(stated: Iterable[str], folder: str) -> dict[str, str | BadSample]:
    """Return the file of each image, or why there is none.

    That is the path in the folder, else the file of this name below whose last folders agree with the path in most
    places. A path without the extension of an image names a file with any.

    Args:
        stated: paths of images as labels state them.
    """
    paths = {path: os.path.join(folder, path) for path in map(below, stated)}
    found: dict[str, str | BadSample] = {**paths}
    others = [path for path, file in paths.items() if not (is_image(path) and os.path.isfile(file))]
    index = _index(folder) if others else {}
    for path in others:
        found[path] = _most_alike(path, index.get(_plain(os.path.basename(path)), ()), folder)
    counts = Counter(file for file in found.values() if isinstance(file, str))
    for path, file in found.items():
        if isinstance(file, str) and counts[file] > 1 and not _agreement(path, file)[-1]:
            found[path] = BadSample("image that is not in its folder, and another has its name; --images names another")
    return found


def is_image(path: str) -> bool:
    return path.lower().endswith(EXTENSIONS)


def _most_alike(path: str, candidates: Sequence[str], folder: str) -> str | BadSample:
    ranked = sorted(candidates, key=lambda file: _agreement(path, file), reverse=True)
    if not ranked:
        return BadSample("image that is not in its folder; --images names another")
    if len(ranked) > 1 and _agreement(path, ranked[0]) == _agreement(path, ranked[1]):
        first, second = sorted(os.path.relpath(file, folder) for file in ranked[:2])
        return BadSample(f"image of which there are several: {first} and {second}; --images names the folder")
    return ranked[0]


def _agreement(path: str, file: str) -> tuple[int, int, bool, bool]:
    """Return how far two paths agree from their last folders upwards.

    Returns:
        The number of folders that state the same split or name, that of the same name, whether the files have one name,
        and whether the folders are all of the first path.
    """
    ours, theirs = (os.path.dirname(each).split(os.sep)[::-1] for each in (path, file))
    alike = same = 0
    for a, b in zip(ours, theirs):
        if _plain(split_of(a) or a) != _plain(split_of(b) or b):
            break
        alike, same = alike + 1, same + (_plain(a) == _plain(b))
    return alike, same, os.path.basename(path) == os.path.basename(file), ours == [""] or same == len(ours)


def _plain(name: str) -> str:
    """Return a name without the differences that file systems make."""
    return unicodedata.normalize("NFC", name).casefold()


def _index(folder: str) -> Mapping[str, Sequence[str]]:
    """Return the images in a folder and near it, by their names and by those without extensions."""
    index = defaultdict[str, list[str]](list)
    folder = os.path.abspath(folder)
    top, name = os.path.split(folder)
    beside = (place for place in _walk(top) if place[0] != top) if LABEL_FOLDERS.fullmatch(name) else ()
    places = dict(chain(_walk(folder), beside))
    for place, names in places.items():
        for each in names:
            for key in {_plain(each), _plain(os.path.splitext(each)[0])}:
                index[key].append(os.path.join(place, each))
    return index


def _walk(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield folders and the names of their images, without hidden ones, down to a depth; links are followed."""
    seen = set[tuple[int, int]]()
    for place, subfolders, files in os.walk(folder, followlinks=True):
        status = os.stat(place)
        key, is_deep = (status.st_dev, status.st_ino), place.removeprefix(folder).count(os.sep) >= MAX_DEPTH
        subfolders[:] = [] if is_deep or key in seen else sorted(name for name in subfolders if not is_hidden(name))
        files = [] if key in seen else files
        seen.add(key)
        yield place, sorted(name for name in files if is_image(name) and not is_hidden(name))
