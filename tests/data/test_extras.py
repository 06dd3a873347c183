"""What is said and done where packages of an extra are not installed."""

import importlib.util
import json
import re
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from tests.helpers import pins
from tests.helpers.paths import ROOT
from tests.test_architecture import CODE, imports
from zoo.data import extras, readers
from zoo.data.errors import UserError

WHEEL = "vision_zoo-0.2.0-py3-none-any.whl"
# Packages that are named with a command of their own, and those that only developers use.
NO_EXTRA = {"optuna", "wandb", "mlflow", "swanlab", "trackio", "torchvision", "torch_npu"}
NO_EXTRA |= {"equinox"}  # which the interpreter of a side of zoo parity has


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Return a function that lets the package seem installed in site-packages, with a direct_url.json."""

    def install(origin, root=tmp_path / "site-packages"):
        text = None if origin is None else json.dumps(origin)
        monkeypatch.setattr(extras, "ROOT", root)
        monkeypatch.setattr(extras.metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
        monkeypatch.setattr(extras.metadata, "requires", lambda name: REQUIRES)

    return install


REQUIRES = [
    "numpy<3,>=1.26",
    'jinja2>=3.1; extra == "plot"',
    'scipy>=1.15; extra == "plot"',
    'cykooz-resizer>=4.0; platform_machine == "x86_64" and extra == "data"',
    'onnxruntime>=1.20; extra == "onnx"',
    'vision-zoo[onnx]; extra == "export"',
    'onnx>=1.17; extra == "export"',
]


def test_the_command_names_where_the_package_comes_from(installed, tmp_path):
    folder = tmp_path / "my zoo"
    folder.mkdir()
    (folder / WHEEL).touch()
    commit = {"vcs": "git", "commit_id": "0123abc", "requested_revision": "main"}
    for origin, command in (
        ({"url": folder.as_uri(), "dir_info": {}}, f"'{folder}[plot]'"),
        ({"url": (folder / WHEEL).as_uri(), "archive_info": {}}, f"'vision-zoo[plot] @ {folder.as_uri()}/{WHEEL}'"),
        ({"url": f"https://x.org/{WHEEL}", "archive_info": {}}, f"'vision-zoo[plot] @ https://x.org/{WHEEL}'"),
        (
            {"url": "https://x.org/zoo.git", "vcs_info": commit},
            "'vision-zoo[plot] @ git+https://x.org/zoo.git@0123abc'",
        ),
        (
            {"url": "ssh://git@x.org/all.git", "vcs_info": commit, "subdirectory": "zoo"},
            "'vision-zoo[plot] @ git+ssh://git@x.org/all.git@0123abc#subdirectory=zoo'",
        ),
    ):
        installed(origin)
        assert extras.install_command("plot") == f"pip install {command}"


@pytest.mark.parametrize("origin", [None, {"url": "file:///nowhere/zoo", "dir_info": {}}], ids=["index", "gone"])
def test_without_an_origin_the_command_names_the_packages(installed, origin):
    installed(origin)
    assert extras.install_command("plot") == "pip install 'jinja2>=3.1' 'scipy>=1.15'"
    assert extras.install_command("data") == "pip install 'cykooz-resizer>=4.0; platform_machine == \"x86_64\"'"
    assert extras.install_command("export,plot").split()[2:] == [
        "'jinja2>=3.1'",
        "'onnx>=1.17'",
        "'onnxruntime>=1.20'",
        "'scipy>=1.15'",
    ]


def test_a_checkout_stays_what_it_is(installed, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    here, other = {"url": tmp_path.as_uri()}, {"url": "file:///elsewhere"}
    for origin, flag in ((None, ""), (here, ""), (here | EDITABLE, "-e "), (other | EDITABLE, "")):
        installed(origin, tmp_path)
        assert extras.install_command("torch") == f"pip install {flag}'{tmp_path}[torch]'"


EDITABLE = {"dir_info": {"editable": True}}


def test_wheels_that_do_not_exist_are_named(monkeypatch):
    monkeypatch.setattr(extras.sys, "version_info", (3, 13, 1))
    monkeypatch.setattr(extras.platform, "machine", lambda: "aarch64")
    assert extras.missing("mindspore").endswith("here: MindSpore 2.8 has no wheel for Python 3.13; use 3.11 or 3.12")
    assert extras.missing("paddle").endswith("here: PyPI has no wheel of Paddle 3.3 for linux on aarch64")
    assert extras.missing("torch").endswith(extras.install_command("torch"))


def test_packages_belong_to_the_extras_that_are_named():
    project, distributions = pins.project()["optional-dependencies"], metadata.packages_distributions()
    for package, extra in extras.EXTRAS.items():
        listed = {requirement.name for requirement in pins.requirements([extra])}
        found = {name.lower() for name in distributions.get(package.split(".")[0], ())}
        assert extra in project and (not found or found & listed), package


@pytest.mark.slow
def test_every_package_that_is_imported_has_an_extra_or_is_always_installed():
    always = {re.split(r"[<>=]", text)[0].replace("pyyaml", "yaml") for text in pins.project()["dependencies"]}
    known = {*always, *(name.split(".")[0] for name in extras.EXTRAS), *sys.stdlib_module_names, *NO_EXTRA, "zoo"}
    files = [name for name in CODE if not name.startswith("evidence/")]
    names = {found.module.split(".")[0] for name in files for found in imports(name)}
    assert names <= known


def test_no_message_or_page_names_the_package_without_its_origin():
    """The name is free on PyPI: whoever takes it would be installed."""
    files = [ROOT / name for name in CODE if name != "zoo/data/extras.py"]
    patterns = ("README*.md", "docs/**/*.md", "examples/*.ipynb", "examples/port/*.py")
    files += [path for pattern in patterns for path in ROOT.glob(pattern)]
    assert [path for path in files if re.search(r"vision-zoo\[|install vision-zoo", path.read_text("utf-8"))] == []


def test_a_deferred_package_is_imported_when_it_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.delitem(sys.modules, "scipy.stats", raising=False)
    package, prepared = extras.Deferred("scipy.stats"), []
    with pytest.raises(UserError, match=re.escape(extras.missing("scipy"))):
        package.norm  # noqa: B018
    present = extras.Deferred("json", prepared.append)
    assert not prepared and present.dumps is json.dumps and present.loads is json.loads and prepared == [json]


def test_a_package_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_here.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="broken_here is installed, but cannot be imported: libGL.so.1: "):
        extras.Deferred("broken_here").flip  # noqa: B018


def test_other_failures_of_imports_stay_tracebacks(monkeypatch):
    for name in ("no_such_package", "scipy.no_such_module"):
        with pytest.raises(ModuleNotFoundError), extras.named():
            importlib.import_module(name)


def read_without_opencv(number):
    sys.modules["cv2"] = None
    return extras.Deferred("cv2").flip


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reading_process_says_what_it_lacks(workers, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UserError, match=re.escape(extras.missing("cv2"))):
        list(readers.Readers(read_without_opencv, workers, 1).read(0, 1))
