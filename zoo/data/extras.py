"""Packages of the extras in pyproject.toml: the command that installs one, and those that are imported when used.

A program that reads no image so starts without OpenCV, and whatever comes to use a package that is not installed, here
or in a reading process, ends in a UserError with the command.
"""

import importlib
import json
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from zoo.data.errors import UserError

NAME = "vision-zoo"  # is free on PyPI: a command never asks an index for it
ROOT = Path(__file__).absolute().parents[2]  # the checkout, or site-packages
EXTRAS = {  # package -> the extra that installs it
    "PIL": "data",
    "av": "data",
    "cv2": "data",
    "cykooz_resizer": "data",
    "nvidia.nvimgcodec": "nvimgcodec",
    "decord": "decord",
    "nvidia.dali": "dali",
    "jinja2": "plot",
    "matplotlib": "plot",
    "scipy": "plot",
    "torch": "torch",
    "paddle": "paddle",
    "mindspore": "mindspore",
    "jax": "jax",
    "flax": "jax",
    "optax": "jax",
    "onnxruntime": "onnx",
    "onnx": "export",
    "pynvml": "gpu",
    "huggingface_hub": "hub",
    "fsspec": "remote",
    "pyarrow": "tables",
    "albumentations": "augment",
    "shtab": "completion",
}
PADDLE_WHEELS = (("linux", "x86_64"), ("darwin", "arm64"))


class NotInstalled(UserError):
    """A package of an extra is missing."""


def install_command(extra: str) -> str:
    """Return the command that adds an extra, or several with commas, to what is running, by where this comes from.

    That is a checkout, or what PEP 610 records: a folder, a file, an address or a repository. Where that is gone or
    nothing is recorded, the command names the packages themselves.
    """
    origin = _direct_url()
    url, path = origin.get("url", ""), Path(url2pathname(urlsplit(origin.get("url", "")).path))
    if (ROOT / "pyproject.toml").exists():
        editable = "-e " if origin.get("dir_info", {}).get("editable") and path == ROOT else ""
        return f"pip install {editable}{shlex.quote(f'{ROOT}[{extra}]')}"
    if not url or (url.startswith("file:") and not path.exists()):
        return f"pip install {' '.join(map(shlex.quote, sorted(_packages(extra))))}"
    if "dir_info" in origin:
        return f"pip install {shlex.quote(f'{path}[{extra}]')}"
    if repository := origin.get("vcs_info"):
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    folder = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    return f"pip install {shlex.quote(f'{NAME}[{extra}] @ {url}{folder}')}"


def _direct_url() -> dict[str, Any]:
    """Return what pip recorded of the origin of this package (direct_url.json); empty if it recorded nothing."""
    try:
        return json.loads(metadata.distribution(NAME).read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return {}


def _packages(extras: str) -> set[str]:
    found: set[str] = set()
    for extra in extras.split(","):
        belongs = re.compile(rf"\s*(?:;|\band\b)\s*extra\s*==\s*(['\"]){extra}\1")
        for requirement in filter(belongs.search, metadata.requires(NAME) or ()):
            nested = re.match(rf"{NAME}\[(.*?)\]", requirement)
            found |= _packages(nested[1]) if nested else {belongs.sub("", requirement)}
    return found


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return all(find_spec(name) is not None for name in (package.split(".")[0], package))


def how_to_install(package: str) -> str:
    if package == "mindspore" and sys.version_info >= (3, 13):
        return "MindSpore 2.8 has no wheel for Python 3.13; use 3.11 or 3.12"
    if package == "paddle" and (sys.platform, platform.machine()) not in PADDLE_WHEELS:
        return f"PyPI has no wheel of Paddle 3.3 for {sys.platform} on {platform.machine()}"
    return install_command(EXTRAS[package])


def missing(package: str) -> str:
    return f"{package} is not installed here: {how_to_install(package)}"


def require(package: str) -> None:
    """Raise UserError if a package is not installed."""
    if not is_installed(package):
        raise NotInstalled(missing(package))


@contextmanager
def named() -> Iterator[None]:
    """Raise UserError where an import of the block lacks a package of an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = next((package for package in EXTRAS if f"{error.name}.".startswith(f"{package}.")), None)
        if package is None or is_installed(package):  # a mistake of the code that imports it
            raise
        raise NotInstalled(missing(package)) from None


class Deferred:
    """A package that is imported when something of it is used first."""

    def __init__(self, name: str, prepare: Callable[[Any], object] = lambda package: None):
        self._name, self._prepare = name, prepare

    @cached_property
    def _package(self) -> Any:
        try:
            with named():
                package = importlib.import_module(self._name)
        except ImportError as error:  # of a library that it is linked with, such as libGL
            raise UserError(f"{self._name} is installed, but cannot be imported: {error}; see zoo doctor") from None
        self._prepare(package)
        return package

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._package, name)
        self.__dict__[name] = value  # found without this method from then on
        return value


def _limit_threads(_: Any) -> None:
    from PIL import AvifImagePlugin

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # reading threads share the cores already


if TYPE_CHECKING:
    import av
    import cv2
    import PIL
    import pyarrow
    from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps
    from pyarrow import parquet
    from scipy import optimize, stats
else:
    av, PIL = Deferred("av"), Deferred("PIL")
    cv2 = Deferred("cv2", lambda package: package.setNumThreads(1))  # one sample per thread: the stream runs several
    Image, ImageDraw = Deferred("PIL.Image", _limit_threads), Deferred("PIL.ImageDraw")
    ImageEnhance, ImageFont, ImageOps = (Deferred(f"PIL.Image{name}") for name in ("Enhance", "Font", "Ops"))
    pyarrow, parquet = Deferred("pyarrow"), Deferred("pyarrow.parquet")
    stats, optimize = Deferred("scipy.stats"), Deferred("scipy.optimize")
