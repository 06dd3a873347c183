"""zoo compare: runs of frameworks and their ranks, comparisons with earlier results, errors."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers import proofs
from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.helpers.training import DEMO, TINY
from zoo import program
from zoo.commands import compare
from zoo.compare import report, worker
from zoo.data.errors import Option, UserError
from zoo.parity import record
from zoo.trainer.plan import Mode
from zoo.trainer.world import UnsupportedPrecision

COMPARE = os.path.join(ROOT, "tools/compare.py")
FACES = {
    "model.variant": "insightface",
    "model.depth": 18,
    "model.width": 8,
    "model.embedding": 8,
    "data.size": 16,
    "data.num_classes": 40,
    "data.val_samples": 10,
    "data.workers": 0,
    "train.batch": 4,
    "train.global_batch": 4,
    "task.sample_rate": 0.5,
}


def command(clips, *words, **changes):
    settings = {**TINY, "data.root": clips, "device": "cpu", **changes}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return [sys.executable, COMPARE, "-c", DEMO, *pairs, *map(str, words)]


@pytest.mark.slow
@pytest.mark.parametrize("other", ["paddle", "jax"])
def test_two_frameworks_agree(other, clips, tmp_path):
    """As a program. The recipe warms up from 0; the proof trains every tensor nevertheless, by the formula."""
    names = [name for name in ("torch", other) if importlib.util.find_spec(name)]
    (tmp_path / "runs/compare-tsm_demo").mkdir(parents=True)  # no folder is used twice
    words = command(clips, "--frameworks", ",".join(names), "--steps", 3)
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, cwd=tmp_path, env=variables)
    assert done.returncode == 0, done.stderr + done.stdout
    made = tmp_path / "runs/compare-tsm_demo-2"
    ends = (".jsonl", "-fp64.safetensors", "-rounded.safetensors", ".log", "-ranks.safetensors", "-ranks.log", "-run")
    assert {"curves.png", "report.html", *(name + end for name in names for end in ends)} == set(os.listdir(made))
    assert (made / "curves.png").read_bytes().startswith(b"\x89PNG\r\n")
    page = (made / "report.html").read_text()
    assert f"tsm_demo.yaml: {', '.join(names)}" in page and 'class="first"' not in page
    head, rows = report.load(str(made / "torch.jsonl"))
    assert (head["framework"], head["compute"], head["global_batch"]) == ("torch", "fp32", 4)
    assert [row.step for row in rows] == [1, 2, 3]
    if len(names) == 2:
        (agree,) = (line for line in done.stdout.splitlines() if line.startswith("they agree: "))
        assert int(agree.split()[2]) > 300 and agree.endswith(" tensors within rounding, losses within 0.001")
        assert "over the first 3 steps" in done.stdout and f"{other}: fp32 on cpu" in done.stdout
        table = [line.split() for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
        assert len(table) == 3 and all(len(row) == 7 and float(row[3]) < 1e-3 for row in table)
    for suffix, precision in (("fp64", "fp64"), ("rounded", "fp32")):
        proof = record.load(str(made / f"torch-{suffix}.safetensors"))
        assert (proof.framework, proof.precision) == ("torch", precision)
        assert proof.settings["lr"] == max(step["lr"] for step in proof.steps[:4]) > 5 * max(row.lr for row in rows)
        assert [step["deviations"] for step in proof.steps] == [{}] * len(proof.steps)
        assert [step["title"] for step in proof.steps[:4]] == [f"update {number}" for number in (1, 2, 3, 4)]
        changes = {key: proof.get(key) for key in proof.shapes if key.startswith("update 1/change/")}
        assert len(changes) > 50 and all(abs(change).max() > 0 for change in changes.values())
        places = {file for calls in proof.passes.values() for call in calls for file in call.files}
        replaced = {"zoo/trainer/torch/cpu_layers.py"} if precision == "fp32" else set()  # narrow shortcuts
        assert places == {"zoo/models/tsm/torch.py", "zoo/models/resnet/torch.py", *replaced}
        assert all(os.path.exists(os.path.join(ROOT, file)) for files in proof.files.values() for file in files)
    assert proof.files["update"] and proof.files["objective"] and proof.files["average"]


@pytest.fixture
def recorded(tmp_path):
    """Results of a comparison of three steps in three frameworks: their folder, the header and the steps."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    header = {"framework": "torch", "device": "cpu (2 threads)", "compute": "fp32", "global_batch": 4}
    rows = [
        {"step": step, "lr": 0.1, "loss": 2.0 / step, "grad_norm": 1.0, "skipped": 0, "seconds": 0.1, "batch": step}
        for step in (1, 2, 3)
    ]
    for framework, variant in proofs.RIGHT.items():
        write_lines(folder / f"{framework}.jsonl", [{**header, "framework": framework}, *rows])
        write_proofs(folder, framework, variant)
    return folder, header, rows


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def write_proofs(folder, framework, variant):
    for precision, suffix in (("fp64", "fp64"), ("fp32", "rounded")):
        path = folder / f"{framework}-{suffix}.safetensors"
        path.unlink(missing_ok=True)
        proofs.record(framework, variant, precision).save(str(path))


@pytest.fixture
def no_training(recorded, monkeypatch):
    """Frameworks are not run: their results are copies of the recorded ones."""
    monkeypatch.setattr(
        compare, "run_worker", lambda framework, _, folder: copy_results(recorded[0], framework, folder)
    )
    monkeypatch.setattr(compare, "select_frameworks", lambda names, *_: (names or "torch,paddle,mindspore").split(","))


def copy_results(source, framework, folder, steps=None):
    """Copy a framework's results, perhaps with fewer steps."""
    for name in os.listdir(source):
        if name.startswith(framework):
            shutil.copy(source / name, folder)
    if steps is not None:
        path = os.path.join(folder, f"{framework}.jsonl")
        with open(path) as file:
            lines = file.readlines()
        with open(path, "w") as file:
            file.writelines(lines[: 1 + steps])
    return ""


def compare_with(tmp_path, *words, frameworks="torch"):
    """Compare with recorded results: the exit code."""
    words = ["-c", DEMO, "--steps", "3", "--out", tmp_path / "new", *words]
    words += ["--frameworks", frameworks] if frameworks else []
    return call_zoo("compare", *words)


def test_a_framework_that_differs_is_reported(recorded, no_training, tmp_path, capsys):
    write_proofs(recorded[0], "paddle", proofs.Variant(is_biased=True))
    assert compare_with(tmp_path, frameworks="torch,paddle,mindspore") == 1
    out = capsys.readouterr().out
    assert "they do not agree: paddle: update 1: statistic of stage.bn.running_var differs by" in out
    assert "likely cause: the variance of a batch is the biased one" in out and "they agree" not in out
    assert "look in: paddle/blocks.py, paddle/statistics.py" in out
    page = (tmp_path / "new/report.html").read_text()
    assert "paddle: update 1: statistic of stage.bn.running_var" in page and 'class="first"' in page


def test_the_proof_alone(recorded, no_training, tmp_path, monkeypatch, capsys):
    """--steps 0: no curve, no speed, no plot."""
    for framework in proofs.RIGHT:
        copy_results(recorded[0], framework, recorded[0].parent, steps=0)
    monkeypatch.setattr(compare, "run_worker", lambda name, _, out: copy_results(recorded[0].parent, name, out))
    assert compare_with(tmp_path, "--steps", 0, frameworks="torch,paddle,mindspore") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "they agree: 80 tensors within rounding"
    assert "per step" not in out and "gradient norm" not in out
    assert "report.html" in os.listdir(tmp_path / "new") and "curves.png" not in os.listdir(tmp_path / "new")


@pytest.mark.parametrize("failing, is_wrong", [("torch", False), ("paddle", True)])
def test_the_others_are_compared_when_one_fails(
    failing, is_wrong, recorded, no_training, tmp_path, monkeypatch, capsys
):
    others = [name for name in proofs.RIGHT if name != failing]
    if is_wrong:
        write_proofs(recorded[0], others[1], proofs.Variant(flow=0.5))

    def run_worker(framework, arguments, folder):
        if framework == failing:
            return f"{framework} exited with code 1; the end of x.log:\nno memory"
        return copy_results(recorded[0], framework, folder)

    monkeypatch.setattr(compare, "run_worker", run_worker)
    assert compare_with(tmp_path, frameworks="torch,paddle,mindspore") == 2
    out, err = capsys.readouterr()
    assert err == f"error: {failing} exited with code 1; the end of x.log:\nno memory\n"
    assert ("they do not agree: " + " or ".join(others) in out) == is_wrong
    assert ("they agree: 80 tensors" in out) == (not is_wrong)
    assert f"tsm_demo.yaml: {', '.join(others)}<" in (tmp_path / "new/report.html").read_text()


def test_an_error_raised_in_one_framework_is_a_difference(recorded, no_training, tmp_path, monkeypatch, capsys):
    """Where anything else was computed: by another framework, or by the same one in another precision."""
    raised = [
        "the proof in fp32",
        "ValueError: a size is wrong",
        ["zoo/models/tsm/paddle.py:40", "zoo/trainer/paddle/trainer.py:9"],
    ]

    def run_worker(framework, arguments, folder):
        if framework != "paddle":
            return copy_results(recorded[0], framework, folder)
        in_training = "seed=4" in arguments.override
        Path(folder, "paddle.crash").write_text(json.dumps([worker.TRAINING, *raised[1:]] if in_training else raised))
        if arguments.override:
            shutil.copy(recorded[0] / "paddle-fp64.safetensors", folder)
        return "paddle exited with code 1; the end of x.log:\nTraceback"

    monkeypatch.setattr(compare, "run_worker", run_worker)
    assert compare_with(tmp_path / "one", frameworks="torch,paddle,mindspore") == 1
    out, err = capsys.readouterr()
    assert "they do not agree: paddle: the proof in fp32 stops with ValueError: a size is wrong; the traceback" in out
    assert "look in: zoo/models/tsm/paddle.py:40, zoo/trainer/paddle/trainer.py:9" in out
    assert "they agree" not in out and err == ""
    assert "a size is wrong" in (tmp_path / "one/new/report.html").read_text()
    assert compare_with(tmp_path / "two", frameworks="paddle") == 2
    assert capsys.readouterr().err == "error: paddle exited with code 1; the end of x.log:\nTraceback\n"
    assert compare_with(tmp_path / "three", "-o", "seed=3", frameworks="paddle") == 1
    out = capsys.readouterr().out
    assert "\npaddle: the proof in fp32 stops with ValueError" in out and "trainer.py:9, paddle/precision.py" in out
    assert compare_with(tmp_path / "four", "-o", "seed=4", frameworks="paddle") == 2
    assert compare_with(tmp_path / "five", "-o", "seed=4", frameworks="torch,paddle") == 1
    assert "they do not agree: paddle: training stops with ValueError" in capsys.readouterr().out


def test_a_worker_notes_where_it_stopped(tmp_path, monkeypatch):
    """A slip in the trainer of one framework."""
    monkeypatch.setattr("zoo.trainer.torch.trainer.nullcontext", None)
    words = [word for key, value in FACES.items() for word in ("-o", f"{key}={value}")]
    words += ["-c", "arcface_synthetic", "--device", "cpu", "--out", str(tmp_path)]
    with pytest.raises(TypeError):
        call_zoo("compare", "--worker", "torch", *words)
    assert worker.crashes(str(tmp_path), has_results=False) == {}
    (found,) = worker.crashes(str(tmp_path), has_results=True).values()
    assert found.titles == ("torch",) and found.what.startswith(
        "the proof in fp64 stops with TypeError: 'NoneType' object is not callable"
    )
    path, line = found.places[0].split(":")
    assert (
        path == "zoo/trainer/torch/trainer.py"
        and "nullcontext()" in Path(ROOT, path).read_text().splitlines()[int(line) - 1]
    )


@pytest.mark.parametrize("error", [UserError("data.root: no such folder"), MemoryError(), KeyboardInterrupt()])
def test_what_is_no_slip_of_a_framework_is_not_noted(error, tmp_path):
    with pytest.raises(type(error)), worker.crash_noted(str(tmp_path / "torch"), "training"):
        raise error
    assert worker.crashes(str(tmp_path), has_results=True) == {}


@pytest.mark.parametrize("compute", ["fp64", "fp32", "bf16"])
def test_the_proof_in_the_run_s_own_precision_comes_last(compute, tmp_path, monkeypatch):
    """JAX's arrays have 64 bits or not by what the last trainer had."""
    computed = []

    def observe(job, config, compute, weights, batches):
        computed.append(compute)
        return SimpleNamespace(save=lambda path: None)

    monkeypatch.setattr(worker.proof, "record", observe)
    monkeypatch.setattr(worker.proof, "batches", lambda job, seed: [])
    trainer = SimpleNamespace(state_dict=dict, params=())
    world = SimpleNamespace(resolve_mode=lambda mode: mode)
    plan, group = SimpleNamespace(mode=Mode(compute)), SimpleNamespace(rank=0)
    job = SimpleNamespace(trainer=trainer, world=world, plan=plan, group=group)
    worker.write_proofs(job, SimpleNamespace(seed=1), str(tmp_path / "jax"))
    assert computed[-1] == compute and set(computed) == {"fp64", "fp32", compute}


def test_the_first_of_two_processes_to_stop_is_shown(tmp_path):
    for reason in ("a slip", "the other process is gone"):
        with pytest.raises(ValueError), worker.crash_noted(f"{tmp_path}/torch-ranks", "the proof with 2 processes"):
            raise ValueError(reason)
    (found,) = worker.crashes(str(tmp_path), has_results=True).values()
    assert found.titles == ("torch",) and found.what.startswith(
        "the proof with 2 processes stops with ValueError: a slip;"
    )


@pytest.mark.parametrize(
    "quoted", ["At:\n  {}(12): backward\n  {}(3): step", "In file {}:12, 8~20", 'File "{}", line 12']
)
def test_lines_that_a_framework_quotes_come_first(quoted):
    """Paddle raises what a backward pass has raised anew, MindSpore what a graph has."""
    error = ValueError(quoted.format(*[Path(ROOT, "zoo/models/tsm/paddle.py")] * 2))
    assert worker.crash_sites(error) == ["zoo/models/tsm/paddle.py:12"]


def test_a_framework_without_the_precision_is_left_out_unless_it_is_asked_for(
    recorded, no_training, tmp_path, monkeypatch, capsys
):
    reason = "train.precision: Paddle has no 16-bit kernels for a CPU; leave --amp out"
    refusing = {"paddle"}

    def run_worker(framework, arguments, folder):
        if framework in refusing:
            Path(folder, f"{framework}.refusal").write_text(reason)
            return f"{framework} exited with code 2; the end of x.log:\nWARNING\nerror: {reason}\n"
        return copy_results(recorded[0], framework, folder)

    monkeypatch.setattr(compare, "run_worker", run_worker)
    assert compare_with(tmp_path / "one", frameworks=None) == 0
    out, err = capsys.readouterr()
    assert f"\npaddle is left out: {reason}\n" in out and "they agree: 80 tensors" in out and err == ""
    assert compare_with(tmp_path / "two", frameworks="torch,paddle") == 2
    assert reason in capsys.readouterr().err
    refusing |= {"torch", "mindspore"}
    assert compare_with(tmp_path / "three", frameworks=None) == 2
    assert capsys.readouterr().err.count(reason) == 3


def test_a_worker_hands_over_that_its_framework_has_no_such_precision(tmp_path, monkeypatch):
    def refuse(*_):
        raise UnsupportedPrecision("train.precision: it has no 16 bits; leave ", Option("--amp", True), " out")

    monkeypatch.setattr(worker, "join", lambda *_: None)
    monkeypatch.setattr(worker, "assemble", refuse)
    assert worker.refusal(str(tmp_path / "paddle")) == ""
    with pytest.raises(UnsupportedPrecision):
        worker.run_rank(None, {}, 0, str(tmp_path / "paddle"))
    assert worker.refusal(str(tmp_path / "paddle")) == "train.precision: it has no 16 bits; leave --amp out"


@pytest.mark.parametrize(
    "change, code, message",
    [
        (lambda row: row, 0, "they agree: 80 tensors within rounding, losses within 0.001"),
        (lambda row: {**row, "loss": row["loss"] * 1.01} if row["step"] == 2 else row, 1, "from step 2 on"),
        (lambda row: {**row, "loss": float("nan")} if row["step"] == 3 else row, 1, "from step 3 on"),
        (
            lambda row: {**row, "batch": 9} if row["step"] == 1 else row,
            2,
            "step 1: the frameworks were given different",
        ),
        (lambda row: {"step": 1}, 2, "cannot be read as results of an earlier comparison"),
    ],
)
def test_against_an_earlier_comparison(recorded, no_training, change, code, message, tmp_path, capsys):
    folder, header, rows = recorded
    (tmp_path / "old").mkdir()
    copy_results(folder, "torch", tmp_path / "old")
    write_lines(tmp_path / "old/torch.jsonl", [header, *map(change, rows)])
    assert compare_with(tmp_path, "--against", tmp_path / "old") == code
    out, err = capsys.readouterr()
    assert message in (err if code == 2 else out)
    assert ("torch (old)" in out) == (code != 2 or "different" in message)


@pytest.fixture
def diverging(recorded, no_training, monkeypatch):
    """Results whose proofs agree and whose losses part: the frameworks that were run again, by what they return."""
    folder, header, rows = recorded
    write_lines(folder / "paddle.jsonl", [header, *({**row, "loss": 1.01 * row["loss"]} for row in rows)])
    again = []

    def run_worker(framework, arguments, out):
        if not arguments.no_proof:
            return copy_results(folder, framework, out)
        again.append((framework, arguments.steps, arguments.amp, tuple(arguments.override)))
        scale = {"mindspore": 1 + 1e-7, "paddle": 1.0, "torch": 1.0}[framework]
        if "seed=3" in arguments.override:
            scale = {"mindspore": 1.0, "paddle": 1 + 2e-6, "torch": 1.0}[framework]
        if "seed=4" in arguments.override and framework == "paddle":
            return "paddle exited with code 1"
        repeated = [{**row, "loss": scale * row["loss"]} for row in rows[: arguments.steps]]
        write_lines(Path(out) / f"{framework}.jsonl", [header, *repeated])
        return ""

    monkeypatch.setattr(compare, "run_worker", run_worker)
    return again


def test_16_bits_are_of_one_type_in_all_frameworks(recorded, no_training, tmp_path, monkeypatch, capsys):
    given = []
    monkeypatch.setattr(
        compare, "run_worker", lambda _, arguments, out: given.append(arguments.override) or "it exited with code 1"
    )
    assert compare_with(tmp_path, "--amp", frameworks="torch,mindspore") == 2
    assert given == [["train.precision=fp16"]] * 2
    assert "train.precision: amp takes fp16 here, in all frameworks" in capsys.readouterr().out


@pytest.mark.parametrize("words, steps", [(["--amp"], 3), (["--within", "2"], 2)])
def test_losses_that_part_by_rounding_alone_agree(words, steps, diverging, tmp_path, capsys):
    """Their steps are run again with --exact, in which these frameworks agree."""
    assert compare_with(tmp_path, *words, frameworks="torch,paddle,mindspore") == 0
    out = capsys.readouterr().out
    assert "the losses differ by more than 0.001 from step 1 on, although all updates are equal" in out
    assert "it is rounding" in out and "within rounding, losses within 1e-06 with --exact" in out
    assert "they do not agree" not in out and "They agree" in (tmp_path / "new/report.html").read_text()
    assert [(name, count, amp) for name, count, amp, _ in diverging] == [
        (name, steps, False) for name in ("torch", "paddle", "mindspore")
    ]
    assert all(override[-3:] == compare.EXACT_SETTINGS for _, _, _, override in diverging)


@pytest.mark.parametrize(
    "seed, message",
    [
        (3, "they do not agree: with --exact, the losses differ by more than 1e-06 from step 1 on"),
        (
            4,
            "the losses differ by more than 0.001 from step 1 on; the comparison with --exact failed",
        ),
    ],
)
def test_losses_that_part_with_exact_too(seed, message, diverging, tmp_path, capsys):
    assert compare_with(tmp_path, "-o", f"seed={seed}", frameworks="torch,paddle,mindspore") == 1
    out = capsys.readouterr().out
    assert message in out and "it is rounding" not in out


def test_partial_fc_draws_other_classes_in_every_step(tmp_path, monkeypatch):
    """The worker counts the steps for the trainer, as train.py does, and so does the proof."""
    steps = {}
    assemble, build_trainer = worker.assemble, worker.proof.build_trainer

    def observe(trainer, name):
        original = trainer.step

        def step(micro_batches, lr, number):
            steps.setdefault(name, []).append(number)
            return original(micro_batches, lr, number)

        monkeypatch.setattr(trainer, "step", step)
        return trainer

    def assemble_observed(request, group):
        job = assemble(request, group)
        observe(job.trainer, "curve")
        return job

    def build_observed(cfg, model, arch, fields, world, mode, *rest):
        objective, trainer = build_trainer(cfg, model, arch, fields, world, mode, *rest)
        return objective, observe(trainer, mode.compute)

    monkeypatch.setattr(worker, "assemble", assemble_observed)
    monkeypatch.setattr(worker.proof, "build_trainer", build_observed)
    words = [word for key, value in FACES.items() for word in ("-o", f"{key}={value}")]
    config = ["-c", "configs/arcface_synthetic.yaml", "--device", "cpu"]
    assert call_zoo("compare", *config, *words, "--steps", "3", "--out", str(tmp_path), "--worker", "torch") == 0
    first = 5 + worker.proof.DRAWS  # behind those from initial weights and nearby
    from_initial_weights, nearby, proof = steps["fp32"][:4], steps["fp32"][4:first], steps["fp32"][first : first + 6]
    assert steps["curve"] == [0, 1, 2] and from_initial_weights == [0, 1, 2, 3] and not any(nearby)
    assert steps["fp64"][:6] == proof == [0, 0, 1, 2, 3, 3]
    _, rows = report.load(str(tmp_path / "torch.jsonl"))
    assert [row.step for row in rows] == [1, 2, 3]
    proof = record.load(str(tmp_path / "torch-fp64.safetensors"))
    (sharded,) = proof.settings["sharded"]
    classes, width = proof.shapes[f"update 1/change/{sharded}"]
    assert (classes, width) == (40, 8) and proof.shapes[f"update 1/gradient/{sharded}"] == (20, 8)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--frameworks", "torch,keras"], "there is no 'keras'; there are: torch, paddle, mindspore, jax"),
        (
            ["--frameworks", "torch", "--steps", "-1"],
            "argument --steps: expected a whole number of at least 0, got '-1'",
        ),
        (["--frameworks", "torch", "--within", "0"], "--within"),
        (["--frameworks", "torch", "--out", "{here}"], "exists already and is not overwritten"),
        (["--frameworks", "torch", "--against", "{here}/nowhere"], "nowhere"),
        (["--frameworks", "torch", "-o", "model.shift_place=nome"], "did you mean none?"),
    ],
)
def test_errors_are_one_message(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_worker", lambda *arguments: pytest.fail("a framework was run"))
    assert call_zoo("compare", "-c", DEMO, *(word.format(here=tmp_path) for word in words)) == 2
    _, err = capsys.readouterr()
    assert message in err and err.startswith("error: ") and not os.path.exists("runs")


SHOWN = "' '.join(str(os.environ.get(name)) for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR'))"
SHOW = f"import os; os.write(1, ({SHOWN} + chr(10)).encode())"  # at once, whatever other ranks write
FAIL = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit('no memory'); time.sleep(600)"


def run(tmp_path, code, count):
    log = tmp_path / "torch.log"
    return worker.run_ranks([sys.executable, "-c", code], count, str(log)), log.read_text()


@pytest.mark.parametrize("count, lines", [(1, ["None None None"]), (3, [f"{rank} 3 127.0.0.1" for rank in range(3)])])
def test_ranks_know_their_numbers(tmp_path, monkeypatch, count, lines):
    monkeypatch.delenv("RANK", raising=False)
    result, text = run(tmp_path, SHOW, count)
    assert result == (0, "") and sorted(text.splitlines()) == lines


def test_a_rank_that_fails_ends_the_others(tmp_path, monkeypatch):
    """They get a moment to end by themselves; the failure is the one that is shown."""
    monkeypatch.setattr(worker, "GRACE", 0.1)
    assert run(tmp_path, FAIL, 2)[0] == (1, "no memory")


def test_a_framework_may_run_in_another_environment(monkeypatch):
    started = []
    monkeypatch.setattr(compare.worker, "run_ranks", lambda command, count, log: (started.append(command), (0, ""))[1])
    arguments = compare.parser().parse_args(["-c", "tsm_demo", "--python", f"paddle={sys.executable}"])
    assert "paddle" in compare.select_frameworks("paddle", compare.interpreters(arguments))
    for framework in ("torch", "paddle"):
        compare.run_worker(framework, arguments, "out")
    assert [command[1:3] for command in started] == [[program.MAIN, "compare"], ["-m", "zoo"]]


@pytest.mark.parametrize(
    "word, message", [("paddel=python3", "paddle"), ("torch=/no/python", "no such program"), ("torch", "NAME=VALUE")]
)
def test_an_interpreter_that_cannot_be_meant_says_why(word, message):
    arguments = compare.parser().parse_args(["-c", "tsm_demo", "--python", word])
    with pytest.raises(UserError, match=message):
        compare.interpreters(arguments)
