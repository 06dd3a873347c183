"""The package of docs/extending.md, installed in a folder as pip does it: modules and entry points."""

import importlib
import re
import sys
import tomllib

from tests.helpers.paths import ROOT
from zoo import models
from zoo.data import plugins


def documented():
    """Return the files of the package that the page shows, by path."""
    text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", text, re.S))
    return {f"mynet/{name}" if name == "channels.py" else name: content for name, content in files.items()}


def install(folder, name="mynet", files=None):
    """Write a package and its entry points to a folder, which is to be on the path."""
    files = documented() if files is None else dict(files)
    groups = tomllib.loads(files.pop("pyproject.toml"))["project"]["entry-points"]
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    info = folder / f"{name}-1.0.dist-info"
    for each in (folder / name, info):
        each.mkdir()
    (folder / name / "__init__.py").touch()
    for path, text in files.items():
        (folder / path).write_text(text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def forget():
    """Forget the installed packages, and what was imported of this one."""
    plugins.installed.cache_clear()
    models.load_spec.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "mynet"]:
        del sys.modules[module]
    importlib.invalidate_caches()
