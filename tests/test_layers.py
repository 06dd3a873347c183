"""The arrows between folders, by reading every import: what may know what, and what no file may hold."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.paths import ROOT
from zoo.frameworks import FRAMEWORKS

FILES = sorted(path for folder in ("data", "zoo", "tools", "tests") for path in (ROOT / folder).rglob("*.py")) + [
    ROOT / "train.py"
]
NAMES = [path.relative_to(ROOT).as_posix() for path in FILES]
MODELS = sorted(path.parent.name for path in (ROOT / "zoo").glob("*/spec.py"))


class Import(NamedTuple):
    module: str  # torch.nn, zoo.models.resnet.torch, data.errors
    deferred: bool  # within a function
    line: int


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def imports(source: str) -> list[Import]:
    """Every module a source imports; `from zoo.models.resnet import torch` is zoo.models.resnet.torch."""
    found: list[Import] = []

    def visit(node, deferred):
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, deferred, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                part = f"{base}.{alias.name}"
                found.append(Import(part if is_module(part) else base, deferred, node.lineno))
        inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, deferred or inner)

    visit(ast.parse(source), False)
    return found


def is_module(dotted: str) -> bool:
    path = ROOT.joinpath(*dotted.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def framework_of(name: str) -> str:
    """torch for zoo/models/tsm/torch.py and zoo/trainer/torch/world.py, "" for neutral files."""
    parts = Path(name).with_suffix("").parts
    return next((part for part in parts[2:] if parts[0] == "zoo" and part in FRAMEWORKS), "")


def offenders(names, forbidden):
    """`file:line imports module` for every import that `forbidden(name, import)` is true of."""
    return [
        f"{name}:{found.line} imports {found.module}"
        for name in names
        for found in imports(read(name))
        if forbidden(name, found)
    ]


def below(module: str, *roots: str) -> bool:
    return any(module == root or module.startswith(root + ".") for root in roots)


DATA = [name for name in NAMES if name.startswith("data/")]
ZOO = [name for name in NAMES if name.startswith("zoo/")]
SHIPPED = [name for name in NAMES if not name.startswith("tests/")]


def test_the_reader_of_imports():
    source = (
        "import torch.nn as nn\nfrom zoo.models.resnet import torch, spec\nfrom data.errors import UserError\n"
        "def f():\n    import grain\n    return lambda: __import__\nclass A:\n    import rich\n"
    )
    assert imports(source) == [
        Import("torch.nn", False, 1),
        Import("zoo.models.resnet.torch", False, 2),
        Import("zoo.models.resnet.spec", False, 2),
        Import("data.errors", False, 3),
        Import("grain", True, 5),
        Import("rich", False, 8),
    ]
    assert [
        framework_of(name)
        for name in (
            "zoo/models/tsm/torch.py",
            "zoo/trainer/paddle/world.py",
            "zoo/models/tsm/spec.py",
            "data/x.py",
            "zoo/config/loader.py",
        )
    ] == ["torch", "paddle", "", "", ""]
    assert "train.py" in NAMES and {"resnet", "tsm"} <= set(MODELS)


def test_no_relative_imports():
    assert offenders(NAMES, lambda name, found: found.module.startswith(".")) == []


def test_data_knows_neither_a_net_nor_a_framework():
    assert offenders(DATA, lambda name, found: below(found.module, "zoo", "tools", "train", *FRAMEWORKS)) == []


def test_neutral_files_import_no_framework():
    neutral = [name for name in ZOO + ["train.py"] if not framework_of(name)]
    allowed = {"zoo/weights/files.py"}  # reads what torch.save wrote
    assert (
        offenders(
            neutral,
            lambda name, found: (
                below(found.module, *FRAMEWORKS)
                and not (name in allowed and found.deferred and below(found.module, "torch"))
            ),
        )
        == []
    )


def test_a_framework_file_imports_its_own_framework_alone():
    assert (
        offenders(
            ZOO,
            lambda name, found: framework_of(name) and below(found.module, *(set(FRAMEWORKS) - {framework_of(name)})),
        )
        == []
    )
    for name in ZOO:
        others = [other for other in FRAMEWORKS if other != framework_of(name)]
        assert not framework_of(name) or not [
            found for found in imports(read(name)) for part in found.module.split(".") if part in others
        ], name  # nor a sibling's file in another one


@pytest.mark.parametrize("model", MODELS)
def test_a_net_knows_its_framework_and_specs(model):
    own = [name for name in ZOO if name.startswith(f"zoo/{model}/") and framework_of(name)]
    assert own

    def forbidden(name, found):
        framework = framework_of(name)
        allowed = [framework, "numpy"] + [f"zoo.{other}.{file}" for other in MODELS for file in ("spec", framework)]
        return not below(found.module, *allowed) and found.module.split(".")[0] not in sys.stdlib_module_names

    assert offenders(own, forbidden) == []


@pytest.mark.parametrize("model", MODELS)
def test_a_spec_knows_fields_laws_and_specs(model):
    allowed = ["data.batch", "zoo.models.initializers", "numpy"] + [f"zoo.{other}.spec" for other in MODELS]
    assert (
        offenders(
            [f"zoo/{model}/spec.py"],
            lambda name, found: (
                not below(found.module, *allowed) and found.module.split(".")[0] not in sys.stdlib_module_names
            ),
        )
        == []
    )


def test_trainers_know_no_model_and_models_no_trainer():
    models = [f"zoo.{model}" for model in MODELS]
    trainers = [name for name in ZOO if name.startswith("zoo/trainer/") and framework_of(name)]
    assert trainers and offenders(trainers, lambda name, found: below(found.module, *models)) == []
    nets = [name for name in ZOO if name.split("/")[1] in MODELS]
    assert offenders(nets, lambda name, found: below(found.module, "zoo.trainer", "zoo.tasks", "data.stream")) == []


def test_neutral_code_loads_framework_files_by_name_alone():
    """load_model_class and load_backend; an import statement would load the framework with it."""
    neutral = [name for name in ZOO + ["train.py"] if not framework_of(name)]
    assert offenders(neutral, lambda name, found: set(found.module.split(".")[1:]) & set(FRAMEWORKS)) == []


def test_tasks_and_weights_know_no_trainer():
    names = [name for name in ZOO if name.startswith(("zoo/tasks/", "zoo/weights/", "zoo/models/initializers.py"))]
    assert offenders(names, lambda name, found: below(found.module, "zoo.trainer", "data.stream")) == []


def test_nothing_imports_the_program_but_its_tests():
    assert offenders(SHIPPED, lambda name, found: below(found.module, "train")) == []
    assert offenders(SHIPPED, lambda name, found: below(found.module, "tests")) == []
    assert offenders(DATA + ZOO + ["train.py"], lambda name, found: below(found.module, "tools")) == []


@pytest.mark.parametrize(
    "library, homes",
    [
        ("grain", ["data/stream.py"]),
        ("rich", ["zoo/logs/console.py"]),
        ("decord", ["data/formats/video.py"]),
        ("tensorboard", ["zoo/logs/tensorboard.py"]),
        ("matplotlib", ["tools/compare.py"]),
        ("PIL", ["data/formats/images.py", "zoo/predict/overlay.py"]),
    ],
)  # reading, and drawing
def test_libraries_have_a_home(library, homes):
    assert (
        offenders([name for name in SHIPPED if name not in homes], lambda name, found: below(found.module, library))
        == []
    )
    assert all(any(below(found.module, library) for found in imports(read(home))) for home in homes)


def test_files_stay_short():
    lines = {name: len(read(name).splitlines()) for name in NAMES}
    assert {name: count for name, count in lines.items() if count > 400} == {}
    assert lines["train.py"] <= 150
    assert [
        f"{name}:{number}"
        for name in NAMES
        for number, line in enumerate(read(name).splitlines(), 1)
        if len(line) > 120
    ] == []


def test_importing_the_program_loads_no_framework():
    heavy = FRAMEWORKS + ("tensorflow", "jax", "grain", "decord", "rich", "tensorboard")
    code = f"import sys, zoo, data, train; print([name for name in {heavy!r} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert (result.stdout.strip(), result.stderr) == ("[]", "")


@pytest.mark.parametrize("name", NAMES)
def test_syntax_of_python_3_9(name):
    tree = ast.parse(read(name), feature_version=(3, 9))
    new = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):  # keywords that came with 3.10
            new += [
                f"{word.arg}= in line {node.lineno}"
                for word in node.keywords
                if word.arg in ("kw_only", "slots") or (word.arg == "strict" and getattr(node.func, "id", "") == "zip")
            ]
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:  # X | Y is evaluated, and fails, on 3.9
                new += [
                    f"| in line {part.lineno}"
                    for part in ast.walk(annotation)
                    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr)
                ]
        if isinstance(node, ast.With) and node.items[0].context_expr.lineno > node.lineno:
            new.append(f"parentheses around the managers of line {node.lineno}")
    assert new == []


def test_no_notes_to_self():
    marks = ["TO" + "DO", "FIX" + "ME", "X" + "XX:"]
    assert [(name, mark) for name in NAMES for mark in marks if mark in read(name)] == []


def test_every_folder_is_a_package():
    """A file called torch.py would otherwise hide the real one."""
    folders = {path.parent for path in FILES if path.relative_to(ROOT).parts[0] in ("zoo", "data")}
    folders |= {path.parent for path in folders if path.parent != ROOT}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_ever_executed_from_a_file(name):
    found = []
    for node in ast.walk(ast.parse(read(name))):
        if isinstance(node, ast.Call):
            called, given = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
            if called in (
                "eval",
                "exec",
                "compile",
                "__import__",
                "os.system",
                "os.popen",
                "yaml.load",
                "yaml.unsafe_load",
            ):
                found.append((called, node.lineno))
            if called.split(".")[0] in ("pickle", "marshal", "shelve", "dill", "joblib"):
                found.append((called, node.lineno))
            if (called == "torch.load" and given.get("weights_only") != "True") or given.get("allow_pickle") == "True":
                found.append((called, node.lineno))
            if given.get("shell") == "True":
                found.append((called, node.lineno))
    assert found == []
