"""tools/airank.py: its commands, exit codes and messages, on constructed runs and on runs of every framework."""

import json
import random

import pytest

from tests.bench.submission.scales import events, write_run, write_scales
from tests.helpers.paths import ROOT
from tests.helpers.processes import require_framework, run, train_arguments
from zoo.bench.airank_log.grammar import parse
from zoo.bench.airank_log.rules import deviations
from zoo.bench.airank_log.values import measure
from zoo.bench.commands.airank import main
from zoo.bench.submission.runs import read
from zoo.frameworks import FRAMEWORKS

OPTIONS = ["--submitter", "ACME", "--hardware-type", "datacenter", "--host-storage-type", "SSD"]
MODELS = ("tsm", "resnet50", "deeplabv3plus", "arcface")


def call(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def pairs(scales):
    return [f"{cards}={path}" for cards, path in scales.items()]


def test_from_runs_to_a_checked_tree(tmp_path, capsys):
    scales, folder = write_scales(tmp_path), tmp_path / "tree"
    code, out, err = call(capsys, "submit", "--out", folder, "--runs", *pairs(scales), *OPTIONS)
    assert (code, out, err) == (0, f"wrote {folder}: 7 files\n", "")
    assert call(capsys, "check", folder) == (0, f"{folder}: 0 problems, 3 logs read\n", "")
    assert "| tsm | 32 | 520.00 | 902.09 | 71.23 | 30.77 |\n" in call(capsys, "summary", folder)[1]
    assert len(json.loads(call(capsys, "summary", folder, *scales.values(), "--json")[1])) == 6
    code, _, err = call(capsys, "submit", "--out", folder, "--runs", *pairs(scales), *OPTIONS)
    assert code == 2 and "exists; name another folder" in err


def test_what_is_missing_is_listed_and_nothing_is_written(tmp_path, capsys):
    begin = {"git": {"commit": "ab" * 20, "dirty": True}, "data": "motion", "protocol": "motion/8x1x1@32"}
    path = write_run(tmp_path / "run", events(1, accuracies=(0.2,), changes=begin)[:-1])
    submit = ("submit", "--out", tmp_path / "tree", "--runs", f"8={path}", "--submitter", "ACME")
    code, out, err = call(capsys, *submit)
    assert (code, out) == (2, "") and not (tmp_path / "tree").exists()
    for words in (
        "error: this cannot be submitted yet, nothing was written:",
        "no hardware_type; give --hardware-type",
        "no host_storage_type; give --host-storage-type",
        "the code differed from commit abababababab",
        "unfinished",
        "target not reached: best top1 0.2000, AI-Rank's target is 0.711",
        "the run had 1 processes, not 8",
        "the rules demand Kinetics-400",
    ):
        assert words in err
    code, out, _ = call(capsys, *submit, "--demo")
    assert code == 0 and "marked as a demo (7 things are missing)" in out
    assert "a demo, not a submission" in call(capsys, "check", tmp_path / "tree")[1]


def test_faces_are_refused(tmp_path, capsys):
    path = write_run(tmp_path / "run", events(1, changes={"model": "arcface"}))
    code, _, err = call(capsys, "submit", "--out", tmp_path / "tree", "--runs", f"1={path}", *OPTIONS)
    assert code == 2 and "AI-Rank lists no model arcface" in err


def test_a_tree_with_problems(tmp_path, capsys):
    call(capsys, "submit", "--out", tmp_path / "tree", "--runs", *pairs(write_scales(tmp_path, (8,))), *OPTIONS)
    (tmp_path / "tree/ACME/linux/system_information.json").unlink()
    code, out, _ = call(capsys, "check", tmp_path / "tree")
    assert code == 1 and "problem: ACME/linux: system_information.json is missing\n" in out
    code, out, _ = call(capsys, "check", tmp_path / "tree", "--json")
    assert code == 1 and json.loads(out)["problems"] == ["ACME/linux: system_information.json is missing"]


def test_the_system_of_a_run(tmp_path, capsys):
    path = write_run(tmp_path / "run", events(32))
    code, out, _ = call(capsys, "system", path, *OPTIONS)
    assert code == 0 and json.loads(out)["number_of_nodes"] == 4
    code, out, err = call(capsys, "system", path)
    assert (code, out) == (2, "") and "give --host-storage-type and --submitter and --hardware-type" in err
    file = tmp_path / "new/system_information.json"
    assert call(capsys, "system", path, *OPTIONS, "--out", file) == (0, "", "")
    assert json.loads(file.read_text())["submitter"] == "ACME"
    code, _, err = call(capsys, "system", path, *OPTIONS, "--out", file)
    assert code == 2 and "nothing is overwritten" in err
    code, _, err = call(capsys, "system", path, *OPTIONS, "--host-memory-capacity", "much")
    assert code == 2 and "not a size" in err


def test_the_mlperf_log_of_a_run(tmp_path, capsys):
    path = write_run(tmp_path / "run", events(8))
    code, out, err = call(capsys, "mllog", path, "--submitter", "ACME", "--platform", "X1", "--status", "onprem")
    assert (code, err) == (0, "") and all(line.startswith(":::MLLOG {") for line in out.splitlines())
    for key, value in (("org", "ACME"), ("platform", "X1"), ("status", "onprem"), ("division", "open")):
        assert f'"key": "submission_{key}", "value": "{value}"' in out
    assert call(capsys, "mllog", path, "--out", tmp_path / "mllog.txt") == (0, "", "")
    assert "unfinished" in call(capsys, "mllog", write_run(tmp_path / "b", events(8, accuracies=(0.1,))[:-1]))[2]


def test_a_speed_run_has_no_mlperf_log(tmp_path, capsys):
    path = write_run(tmp_path / "run", events(8, changes={"speed": {"drop": 20, "count": 100}}))
    code, out, err = call(capsys, "mllog", path, "--out", tmp_path / "mllog.txt")
    assert (code, out) == (2, "") and f"error: {path} is a run of --speed" in err
    assert not (tmp_path / "mllog.txt").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "run"], "expected CARDS=RUN with 1, 8, 32 cards"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "4={}"], "expected CARDS=RUN with 1, 8, 32 cards"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "1={}"], "not the folder of a run"),
        (["submit", "--out", "{}/t", "--submitter", "A/B", "--runs", "1={}/one"], "cannot be the name of a folder"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "1={}/one", "1={}/one"], "given twice"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "1={}/one", "8={}/other"], "resnet and tsm"),
        (["check", "{}/missing"], "there is no such folder"),
        (["summary", "{}/missing"], "there is no such folder"),
        (["system", "{}/missing"], "not the folder of a run"),
        (["mllog", "{}"], "not the folder of a run"),
    ],
)
def test_errors_are_named_without_a_traceback(arguments, message, tmp_path, capsys):
    write_run(tmp_path / "one", events(1))
    write_run(tmp_path / "other", events(8, changes={"model": "resnet"}))
    code, out, err = call(capsys, *[argument.replace("{}", str(tmp_path)) for argument in arguments])
    assert (code, out) == (2, "") and err.startswith("error: ") and message in err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("value", ["0", "-1", "nan", "much"])
def test_impossible_targets(value, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["summary", "x", f"--target={value}"])
    assert caught.value.code == 2 and "--target" in capsys.readouterr().err


WRONG = (None, True, -1, 0, 1e400, "", "x" * 99, [], {}, [3], {"a": 1})


def damaged(seed):
    """Return a journal in which one to three values are of another type, or missing."""
    rng = random.Random(seed)
    found = json.loads(json.dumps(events(8)))
    for _ in range(rng.randint(1, 3)):
        place = rng.choice(found)
        for _ in range(rng.randrange(3)):
            inner = [value for value in place.values() if isinstance(value, dict) and value]
            inner += [
                value[0] for value in place.values() if isinstance(value, list) and value and type(value[0]) is dict
            ]
            place = rng.choice(inner) if inner else place
        name = rng.choice(sorted(place))
        if rng.random() < 0.3:
            del place[name]
        else:
            place[name] = rng.choice(WRONG)
    return found


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 20))])
def test_damaged_journals_are_errors_without_a_traceback(block, tmp_path, capsys):
    for seed in range(block * 100, (block + 1) * 100):
        path = tmp_path / str(seed)
        path.mkdir()
        (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in damaged(seed)))
        tree = tmp_path / f"tree{seed}"
        for arguments in (
            ["submit", "--out", tree, "--runs", f"8={path}", *OPTIONS, "--demo"],
            ["system", path, *OPTIONS],
            ["summary", path],
            ["mllog", path],
        ):
            try:
                assert main([str(argument) for argument in arguments]) in (0, 2)
            except Exception as error:
                error.add_note(f"{arguments[0]} of damaged({seed})")
                raise
        if tree.exists():
            assert main(["check", str(tree)]) in (0, 1)
    capsys.readouterr()


@pytest.fixture(scope="module")
def trained(demo_sets, tmp_path_factory):
    """Return a function that trains a small demo and returns its folder; once per model and framework."""
    folders = {}

    def train(model, framework):
        require_framework(framework)
        if (model, framework) not in folders:
            folder = tmp_path_factory.mktemp("runs") / f"{model}_{framework}"
            changes = {"train__eval_every": "2 steps", "train__save_every": "2 steps", "target": 0.01}
            run("python", 1, folder, train_arguments(demo_sets, model, folder, framework, **changes))
            folders[model, framework] = folder
        return folders[model, framework]

    return train


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_log_of_a_demo_recomputes_and_its_tree_passes(framework, trained, tmp_path, capsys):
    folder = trained("tsm", framework)
    begin = read(str(folder)).begin
    lines = (folder / "airank.log").read_text().splitlines()
    found = deviations(parse(lines), None, begin["train_samples"], 0)
    assert [line for line in found if "by hand" not in line] == []  # the first update of a framework takes long
    values = measure(parse(lines), None, begin["train_samples"], 0)
    assert values["avg_ips"] == pytest.approx(values["samples_per_s"], rel=1e-4)
    tree = tmp_path / "tree"
    code, out, _ = call(capsys, "submit", "--out", tree, "--runs", f"1={folder}", "--submitter", "ACME", "--demo")
    assert code == 0 and "marked as a demo" in out
    problems = json.loads(call(capsys, "check", tree, "--json")[1])["problems"]
    assert [line for line in problems if "by hand" not in line] == []
    assert f"Python {begin['hosts'][0]['python']}" in (tree / "ACME/linux/system_information.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_mlperf_log_of_a_demo_is_accepted(model, trained, tmp_path, capsys):
    mlp_compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    path = tmp_path / "mllog.txt"
    assert call(capsys, "mllog", trained(model, "torch"), "--out", path)[0] == 0
    found, errors = mlp_compliance.mlp_parser.parse_file(str(path), ruleset="4.0.0")
    assert len(found) == len(path.read_text().splitlines()) > 30 and errors == []
    config = ROOT / f"tools/bench/submission/mlperf_rules/{model}.yaml"
    checker = mlp_compliance.make_checker("training", "4.0.0", quiet=False, werror=True)
    assert checker.check_file(str(path), str(config) if config.exists() else "training_4.0.0/common.yaml")
