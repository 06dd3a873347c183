"""`zoo airank`: its commands, exit codes and messages, on constructed runs and on runs of the demos."""

import json
from functools import cache

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.processes import require_framework, run, train_arguments
from tests.helpers.submissions import events, write_run, write_scales
from zoo import cli
from zoo.bench.airank_log import deviations, measure, parse
from zoo.bench.submission.runs import read

OPTIONS = ["--submitter", "ACME", "--hardware-type", "datacenter", "--host-storage-type", "SSD"]
MODELS = ("tsm", "resnet50", "deeplabv3plus", "arcface")


def call(capsys, *arguments):
    code = cli.main(["airank", *map(str, arguments)])
    return code, *capsys.readouterr()


def pairs(scales):
    return [f"{cards}={path}" for cards, path in scales.items()]


def test_from_runs_to_a_checked_tree(tmp_path, capsys):
    scales, folder = write_scales(tmp_path), tmp_path / "tree"
    code, out, err = call(capsys, "submit", "--out", folder, "--runs", *pairs(scales), *OPTIONS)
    assert (code, out, err) == (0, f"wrote {folder}: 7 files\n", "")
    assert call(capsys, "check", folder) == (0, f"{folder}: 0 problems\n", "")
    assert "520.00" in call(capsys, "summary", folder)[1]
    assert len(json.loads(call(capsys, "summary", folder, *scales.values(), "--json")[1])) == 6
    code, _, err = call(capsys, "submit", "--out", folder, "--runs", *pairs(scales), *OPTIONS)
    assert code == 2 and "exists" in err
    (folder / "ACME/linux/tsm/log/GPUx8.log").write_text("")
    code, out, _ = call(capsys, "check", folder, "--json")
    assert code == 1 and "GPUx8.log" in json.loads(out)[0]


def test_what_is_missing_is_listed_and_nothing_is_written(tmp_path, capsys):
    begin = {"git": {"commit": "ab" * 20, "dirty": True}, "data": "motion", "protocol": "motion/8x1x1@32"}
    path = write_run(tmp_path / "run", events(1, accuracies=(0.2,), changes=begin)[:-1])
    submit = ("submit", "--out", tmp_path / "tree", "--runs", f"8={path}", "--submitter", "ACME")
    code, out, err = call(capsys, *submit)
    assert (code, out) == (2, "") and not (tmp_path / "tree").exists()
    for words in (
        *("--hardware-type", "--host-storage-type", "differed from commit abababababab", "unfinished"),
        *("target not reached: best top1 0.2000", "1 processes, not 8", "demand Kinetics-400"),
    ):
        assert words in err
    code, out, _ = call(capsys, *submit, "--demo")
    assert code == 0 and "marked as a demo (7 things are missing)" in out


def test_the_mlperf_log_of_a_run(tmp_path, capsys):
    path = write_run(tmp_path / "run", events(8))
    code, out, err = call(capsys, "mllog", path, "--submitter", "ACME", "--platform", "X1", "--status", "onprem")
    assert (code, err) == (0, "") and all(line.startswith(":::MLLOG {") for line in out.splitlines())
    for key, value in (("org", "ACME"), ("platform", "X1"), ("status", "onprem"), ("division", "open")):
        assert f'"key": "submission_{key}", "value": "{value}"' in out
    assert call(capsys, "mllog", path, "--out", tmp_path / "mllog.txt") == (0, "", "")
    assert call(capsys, "mllog", path, "--out", tmp_path / "mllog.txt")[0] == 2
    assert "unfinished" in call(capsys, "mllog", write_run(tmp_path / "b", events(8, accuracies=(0.1,))[:-1]))[2]
    speed = write_run(tmp_path / "speed", events(8, changes={"speed": {"drop": 20, "count": 100}}))
    code, _, err = call(capsys, "mllog", speed)
    assert code == 2 and "--speed" in err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "run"], "expected CARDS=RUN, such as"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "1={}"], "not the folder of a run"),
        (["submit", "--out", "{}/t", "--submitter", "A/B", "--runs", "1={}/one"], "--submitter"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "1={}/one", "1={}/one"], "given twice"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "1={}/one", "8={}/other"], "arcface and tsm"),
        (["submit", "--out", "{}/t", "--submitter", "A", "--runs", "8={}/other"], "lists no model arcface"),
        (["check", "{}/missing"], "there is no such folder"),
        (["mllog", "{}"], "not the folder of a run"),
    ],
)
def test_errors_are_named_without_a_traceback(arguments, message, tmp_path, capsys):
    write_run(tmp_path / "one", events(1))
    write_run(tmp_path / "other", events(8, changes={"model": "arcface"}))
    code, out, err = call(capsys, *[argument.replace("{}", str(tmp_path)) for argument in arguments])
    assert (code, out) == (2, "") and err.startswith("error: ") and message in err
    assert not (tmp_path / "t").exists()


@pytest.fixture(scope="module")
def trained(demo_sets, tmp_path_factory):
    """Return a function that trains a small demo with PyTorch and returns its folder; once per model."""

    @cache
    def train(model):
        require_framework("torch")
        folder = tmp_path_factory.mktemp("runs") / model
        changes = {"train__eval_every": "2 steps", "train__save_every": "2 steps", "target": 0.01}
        run("python", 1, folder, train_arguments(demo_sets, model, folder, "torch", **changes))
        return folder

    return train


@pytest.mark.slow
def test_the_log_of_a_demo_recomputes_and_its_tree_passes(trained, tmp_path, capsys):
    folder = trained("tsm")
    begin = read(str(folder)).begin
    lines = (folder / "airank.log").read_text().splitlines()
    found = deviations(parse(lines), None, begin["train_samples"], 0)
    assert [line for line in found if "by hand" not in line] == []  # the first update of a framework takes long
    values = measure(parse(lines), None, begin["train_samples"], 0)
    assert values["avg_ips"] == pytest.approx(values["samples_per_s"], rel=1e-4, abs=6e-4)  # three decimals
    tree = tmp_path / "tree"
    code, out, _ = call(capsys, "submit", "--out", tree, "--runs", f"1={folder}", "--submitter", "ACME", "--demo")
    assert code == 0 and "marked as a demo" in out
    code, out, _ = call(capsys, "check", tree, "--json")
    expected = ("DEMO.md", "system_information.json", "no evaluation reaches the target 0.711", "by hand")
    assert code == 1 and [line for line in json.loads(out) if not any(words in line for words in expected)] == []


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_mlperf_log_of_a_demo_is_accepted(model, trained, tmp_path, capsys):
    mlp_compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    path = tmp_path / "mllog.txt"
    assert call(capsys, "mllog", trained(model), "--out", path)[0] == 0
    found, errors = mlp_compliance.mlp_parser.parse_file(str(path), ruleset="4.0.0")
    assert len(found) == len(path.read_text().splitlines()) > 30 and errors == []
    config = "training_4.0.0/common.yaml" if model == "resnet50" else ROOT / "zoo/bench/submission/mlperf_rules.yaml"
    checker = mlp_compliance.make_checker("training", "4.0.0", quiet=False, werror=True)
    assert checker.check_file(str(path), str(config))
