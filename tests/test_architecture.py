"""The import graph between folders, and what no file may contain; every file is parsed once."""

import ast
import graphlib
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.paths import ROOT
from zoo.data import extras
from zoo.frameworks import FRAMEWORKS

FOLDERS = ("zoo", "tools", "evidence", "tests")
NAMES = [path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
NAMES.append("train.py")
CODE = [name for name in NAMES if not name.startswith("tests/")]
PROGRAMS = [name for name in CODE if name == "train.py" or name.rpartition("/")[0] == "tools"]
MODELS = sorted(path.parent.name for path in (ROOT / "zoo/models").glob("*/spec.py"))

# A package may import packages of the layers below it, never of its own layer or above.
LAYERS = (
    {"zoo.data.transforms"},
    {"zoo.data.formats"},
    {"zoo.data.augment"},
    {"zoo.data.loaders"},
    {"zoo.data.packs"},
    {"zoo.data.audit"},
    {"zoo.data.datasets"},
    {"zoo.data.demo", "zoo.data.preparing", "zoo.data.importing"},
    {"zoo.table"},
    {"zoo.cuda_libraries", "zoo.program", "zoo.templates"},
    {"zoo.frameworks"},
    {"zoo.losses"},
    {"zoo.models", "zoo.config", "zoo.tasks"},
    {"zoo.optim"},
    {"zoo.weights"},
    {"zoo.parity"},
    {"zoo.trainer"},
    {"zoo.predict", "zoo.distributed", "zoo.logs"},
    {"zoo.visualization"},
    {"zoo.run"},
    {"zoo.compare", "zoo.doctor", "zoo.export", "zoo.finetune", "zoo.visualization.page"},
    {"zoo.commands"},
    {"zoo.bench"},
    {"zoo"},  # cli.py and the Python API
    {"evidence"},
)
RANK = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}
# Number of files that import a library at most: what it does has one home, and few files know it.
LIBRARIES = {
    "rich": 2,
    "decord": 2,
    "nvidia": 2,
    "onnx": 5,
    "onnxruntime": 5,
    "matplotlib": 3,
    "PIL": 9,
}
# What few runs need; `zoo train` imports it when it is used.
FEW_RUNS = (
    *("zoo.commands.json_schema", "zoo.commands.keys", "zoo.commands.plan", "zoo.config.suggestions"),
    *(
        "zoo.data.archives",
        "zoo.data.loaders.dali_graph",
        "zoo.distributed.rendezvous",
        "zoo.run.exported",
        "zoo.run.hub",
        "zoo.run.speed",
    ),
    *("zoo.weights.ckpt", "zoo.weights.onnx_file", "zoo.weights.pth", "zoo.weights.registry"),
)


class Import(NamedTuple):
    module: str  # torch.nn, zoo.models.resnet.torch, zoo.data.errors
    deferred: bool  # within a function
    line: int


@cache
def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(source(name))


@cache
def imports(name: str) -> list[Import]:
    return imports_of(tree(name))


def imports_of(module: ast.AST) -> list[Import]:
    """Every module that is imported; `from zoo.models.resnet import torch` is zoo.models.resnet.torch."""
    found: list[Import] = []

    def visit(node: ast.AST, deferred: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, deferred, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                if base == "zoo.data.extras" and isinstance(package := getattr(extras, alias.name), extras.Deferred):
                    found.append(Import(package._name, True, node.lineno))
                    continue
                part = f"{base}.{alias.name}"
                found.append(Import(part if is_module(part) else base, deferred, node.lineno))
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, deferred or inner)

    visit(module, False)
    return found


def is_module(dotted: str) -> bool:
    path = ROOT.joinpath(*dotted.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def package_of(module: str) -> str:
    """zoo.run for zoo.run.job, zoo.data.formats for zoo.data.formats.images, zoo.data for zoo.data.batch."""
    parts = module.split(".")
    return next((name for end in (3, 2) if (name := ".".join(parts[:end])) in RANK), ".".join(parts[:2])
                if parts[1:2] == ["data"] else parts[0])  # fmt: skip


def module_of(name: str) -> str:
    """zoo.data for zoo/data/__init__.py."""
    return name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def framework_of(name: str) -> str:
    """torch for zoo/models/tsm/torch.py and zoo/trainer/torch/world.py, jax for jax_flax.py, "" for neutral files."""
    parts = (part.split("_")[0] for part in Path(name).with_suffix("").parts[2:])
    return next((part for part in parts if part in FRAMEWORKS), "")


def below(module: str, *roots: str) -> bool:
    return any(module == root or module.startswith(root + ".") for root in roots)


def offenders(names, forbidden):
    """`file:line imports module` for every import for which forbidden(name, import) is true."""
    return [
        f"{name}:{found.line} imports {found.module}"
        for name in names
        for found in imports(name)
        if forbidden(name, found)
    ]


DATA = [name for name in NAMES if name.startswith("zoo/data/")]
CORE = [name for name in NAMES if name.startswith("zoo/") and not name.startswith("zoo/bench/")]
NEUTRAL = [name for name in [*CORE, "train.py"] if not framework_of(name)]


def test_the_reader_of_imports():
    text = (
        "import torch.nn as nn\nfrom zoo.models.resnet import torch, spec\nfrom zoo.data.errors import UserError\n"
        "def f():\n    import av\n    return lambda: __import__\nclass A:\n    import rich\n"
    )
    assert imports_of(ast.parse(text)) == [
        Import("torch.nn", False, 1),
        Import("zoo.models.resnet.torch", False, 2),
        Import("zoo.models.resnet.spec", False, 2),
        Import("zoo.data.errors", False, 3),
        Import("av", True, 5),
        Import("rich", False, 8),
    ]
    names = ("zoo/models/tsm/torch.py", "zoo/trainer/paddle/world.py", "zoo/models/tsm/spec.py", "zoo/data/x.py")
    assert [framework_of(name) for name in names] == ["torch", "paddle", "", ""]
    modules = ("zoo.run.job", "zoo.data.formats.images", "zoo.data.batch", "zoo", "torch.nn")
    assert [*map(package_of, modules)] == ["zoo.run", "zoo.data.formats", "zoo.data", "zoo", "torch"]
    assert [*map(module_of, ("zoo/data/__init__.py", "zoo/cli.py"))] == ["zoo.data", "zoo.cli"]
    assert "train.py" in NAMES and {"arcface", "deeplabv3plus", "resnet", "tsm", "tsm_mobilenet_v2"} <= set(MODELS)


def test_imports_point_to_lower_layers():
    def forbidden(name, found):
        importer, imported = package_of(module_of(name)), package_of(found.module)
        return importer in RANK and imported in RANK and importer != imported and RANK[imported] >= RANK[importer]

    files = [name for name in CODE if name not in PROGRAMS]
    assert offenders(files, forbidden) == []
    assert {package_of(module_of(name)) for name in files} - {"zoo.data"} <= set(RANK)  # none is left out


def test_no_files_import_each_other():
    files = {module_of(name): name for name in CODE if name not in PROGRAMS}
    graph = {
        module: {found.module for found in imports(name) if found.module in files} - {module}
        for module, name in files.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_data_imports_neither_the_zoo_nor_a_framework():
    def forbidden(_, found):
        return below(found.module, *FRAMEWORKS) or (below(found.module, "zoo") and not below(found.module, "zoo.data"))

    assert offenders(DATA, forbidden) == []


def test_the_core_imports_nothing_of_the_benchmark_side():
    assert offenders(CORE, lambda _, found: below(found.module, "zoo.bench", "tools", "train", "tests")) == []


def test_neutral_files_import_no_framework():
    def forbidden(name, found):
        reads_pth = (
            name.startswith(("zoo/weights/", "zoo/commands/convert"))
            and found.deferred
            and below(found.module, "torch")
        )
        return below(found.module, *FRAMEWORKS) and not reads_pth  # what torch.save wrote

    assert offenders(NEUTRAL, forbidden) == []


def test_modules_that_windows_lacks_are_imported_where_they_are_used():
    unix = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp")
    assert offenders(CODE, lambda name, found: below(found.module, *unix) and not found.deferred) == []


def test_framework_files_are_imported_by_name_alone():
    """By zoo.models.load_model_class and zoo.trainer.load_backend; an import statement would load the framework."""
    assert offenders(NEUTRAL, lambda _, found: set(found.module.split(".")[1:]) & set(FRAMEWORKS)) == []


def test_a_framework_file_imports_its_own_framework_alone():
    def forbidden(name, found):
        others = set(FRAMEWORKS) - {framework_of(name)}
        return framework_of(name) and (below(found.module, *others) or others & set(found.module.split(".")))

    assert offenders(CORE, forbidden) == []


@pytest.mark.parametrize("model", MODELS)
def test_a_model_imports_its_framework_and_specs(model):
    def forbidden(name, found):
        framework = framework_of(name)
        own = [f"zoo.models.{other}.{file}" for other in MODELS for file in ("spec", framework)]
        standard = found.module.split(".")[0] in sys.stdlib_module_names and found.module.split(".")[0] != framework
        neutral = (
            ["zoo.data.batch", "zoo.data.fields"]
            + [f"zoo.models.{file}" for file in ("defaults", "flops", "initializers")]
            if not framework
            else [framework, *(["flax"] if framework == "jax" else [])]
        )
        if name.endswith("/onnx.py"):
            neutral = ["zoo.models.onnx_graph", *(f"zoo.models.{other}.onnx" for other in MODELS)]
        return not standard and not below(found.module, "numpy", *neutral, *own)

    names = [name for name in CORE if name.startswith(f"zoo/models/{model}/")]
    assert {f"zoo/models/{model}/{file}.py" for file in ("__init__", "spec")} < set(names)
    assert offenders(names, forbidden) == []


def test_trainers_import_no_model():
    trainers = [name for name in CORE if name.startswith("zoo/trainer/")]
    assert trainers and offenders(trainers, lambda _, found: below(found.module, "zoo.models")) == []


def test_a_library_is_imported_in_few_places():
    users = {
        library: {name for name in CODE for found in imports(name) if below(found.module, library)}
        for library in LIBRARIES
    }
    assert {library: names for library, names in users.items() if not 0 < len(names) <= LIBRARIES[library]} == {}


def test_importing_the_program_loads_no_framework():
    heavy = (*FRAMEWORKS, *(name for name in LIBRARIES if name != "PIL"), "scipy", "av")
    code = (
        f"import sys, zoo.cli, zoo.commands.train; few = [name for name in {FEW_RUNS!r} if name in sys.modules]; "
        f"import zoo.api; print(few, [name for name in {heavy!r} if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert (result.stdout.strip(), result.stderr) == ("[] []", "")


def test_every_folder_is_a_package():
    """A file called torch.py would otherwise hide the real one."""
    folders = {(ROOT / name).parent for name in NAMES} - {ROOT, ROOT / "tools"}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_notes_to_self():
    marks = ["TO" + "DO", "FIX" + "ME", "X" + "XX:"]
    assert [(name, mark) for name in NAMES for mark in marks if mark in source(name)] == []


def test_files_that_comments_name_exist():
    named = re.compile(r"\b(?:zoo|tools|evidence|tests)/[\w./-]+\.py\b")
    found = [(name, path) for name in CODE for path in named.findall(source(name)) if not (ROOT / path).exists()]
    assert found == []


def test_nothing_is_executed_from_a_file():
    allowed = "zoo/data/readers.py"  # what the data workers of the same run have written
    found = [f"{name}:{line} {call}" for name in CODE for call, line in unsafe_calls(tree(name)) if name != allowed]
    assert found == []


def test_no_file_is_written_through_a_link():
    """Folders of runs, predictions and preparations may come from somebody else; see zoo/data/durable.py."""

    def is_unsafe(node):
        modes = [word.value for word in node.args[1:2] if isinstance(word, ast.Constant)]
        return (
            isinstance(node.func, ast.Name)
            and node.func.id == "open"
            and any(set("wa+") & set(str(mode)) for mode in modes)
            and "opener" not in {keyword.arg for keyword in node.keywords}
            and ast.unparse(node.args[0]) not in ("os.devnull", "descriptor", "temporary")
        )

    folders = ("zoo/data/durable", "zoo/data/preparing/", "zoo/logs/", "zoo/predict/", "zoo/run/", "zoo/visualization/")
    found = [
        f"{name}:{node.lineno}"
        for name in CODE
        if name.startswith((*folders, "zoo/bench/matrix/"))
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call) and is_unsafe(node)
    ]
    assert found == []


def test_one_file_writes_csv():
    """So that names of strangers are formulas in none."""
    writers = [name for name in CODE if re.search(r"csv\.(writer|DictWriter)", source(name))]
    assert writers == ["zoo/data/formats/csv_files.py"]


def test_unsafe_calls_are_found():
    text = (
        "eval('1')\nimport pickle\npickle.loads(x)\ntorch.load(f)\nnp.load(f, allow_pickle=True)\nrun(c, shell=True)\n"
    )
    assert [line for _, line in unsafe_calls(ast.parse(text))] == [1, 3, 4, 5, 6]
    assert list(unsafe_calls(ast.parse("torch.load(f, weights_only=True)\nyaml.safe_load(f)\npickle.dump(x, f)"))) == []


def unsafe_calls(module: ast.AST):
    """(call, line) of calls that can execute what a file contains."""
    forbidden = ("eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load")
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        call, given = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
        if (
            call in forbidden
            or (call.split(".")[0] in ("pickle", "marshal", "shelve", "dill", "joblib") and call != "pickle.dump")
            or (call == "torch.load" and given.get("weights_only") != "True")
            or given.get("allow_pickle") == "True"
            or given.get("shell") == "True"
        ):
            yield call, node.lineno
