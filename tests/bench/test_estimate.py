"""Estimates: exact where they can be computed, against PyTorch's own tensors where they cannot."""

import re

import pytest

from tests.helpers.paths import ROOT
from zoo.bench.commands import estimate as tool
from zoo.data.errors import UserError
from zoo.models.arcface.spec import NUM_PARAMETERS

SYNTHETIC = [
    "-c",
    "configs/arcface_synthetic.yaml",
    "-o",
    "data.num_classes=1000003",
    "-o",
    "model.embedding=64",
    "-o",
    "train.batch=8",
    "-o",
    "data.size=32",
    "-o",
    "model.width=8",
    "-o",
    "model.depth=18",
]


measure_program = tool.measure_program


@pytest.fixture(autouse=True)
def no_program(monkeypatch):
    """The memory of the program takes seconds to measure; two tests do."""
    monkeypatch.setattr(tool, "measure_program", lambda framework, processes: 0)


def table(capsys, *words):
    """Return name of a row -> MiB, of both tables."""
    assert tool.main([*map(str, words)]) == 0
    memory, messages = capsys.readouterr().out.split("messages from")
    rows = re.compile(r"^  (.{24})(.{12}) MiB", re.M)
    return [
        {name.strip(): float(size.replace(",", "")) for name, size in rows.findall(part)} for part in (memory, messages)
    ]


def test_a_single_process(capsys):
    """insightface's R50: all parameters but one have a momentum and a gradient, statistics have none."""
    memory, messages = table(
        capsys,
        "-c",
        "configs/arcface_synthetic.yaml",
        *("-o", "model.variant=insightface", "-o", "train.batch=2", "-o", "train.ema=0.99"),
    )
    assert memory["moving average"] == memory["weights"]
    assert memory["head.weight, average"] == memory["head.weight"]
    mib = 4 / 2**20
    assert memory["gradients"] == pytest.approx((NUM_PARAMETERS["insightface"][50] - 512) * mib, abs=0.06)
    assert memory["momentum"] == memory["gradients"] < memory["weights"]
    assert memory["head.weight"] == pytest.approx(85742 * 512 * mib, abs=0.06)
    assert memory["at its peak"] == pytest.approx(sum(memory.values()) - memory["at its peak"], abs=0.5)
    assert set(messages.values()) == {0.0}


def test_a_split_class_matrix(capsys):
    """Three processes hold a third each; the logits are of the global batch."""
    (alone, _), (three, messages) = (table(capsys, *SYNTHETIC, "--world", size) for size in (1, 3))
    for row in ("head.weight", "head.weight, momentum", "head.weight, gradient"):
        assert three[row] == pytest.approx(alone[row] / 3, abs=0.1)
    assert three["logits"] == pytest.approx(24 * 333335 * 4 / 2**20, abs=0.06) == alone["logits"]
    assert messages["gradients"] == three["gradients"]
    assert messages["embeddings"] == messages["their gradient"] == pytest.approx(24 * 64 * 4 / 2**20, abs=0.06)


def test_mindspore_copies_rows_during_the_update(capsys):
    torch, mindspore = (table(capsys, *SYNTHETIC, "--framework", name)[0] for name in ("torch", "mindspore"))
    assert mindspore["head.weight, rows used"] == pytest.approx(2 * mindspore["head.weight"], abs=0.3)
    assert mindspore["logits"] == pytest.approx(4 * torch["logits"], abs=0.3) and "head.weight, rows used" not in torch


def test_partial_fc(capsys):
    whole, tenth = (table(capsys, *SYNTHETIC, "-o", f"task.sample_rate={rate}", "--world", 2)[0] for rate in (1, 0.1))
    for row in ("logits", "head.weight, gradient"):
        assert tenth[row] == pytest.approx(whole[row] / 10, abs=0.1)
    assert tenth["head.weight"] == whole["head.weight"] and tenth["head.weight, rows used"] > 0


def test_no_data_are_needed(capsys):
    """The shipped recipes, with the classes of the published sets or those given."""
    memory, _ = table(capsys, "-c", "configs/arcface_glint360k.yaml", "-o", "data.root=/nowhere/glint360k")
    assert memory["head.weight"] == pytest.approx(360232 * 512 * 4 / 2**20, abs=0.06)
    words = ["-c", "configs/arcface_ms1m.yaml", "-o", "data.root=/nowhere", "-o", "data.size=32", "-o", "train.batch=2"]
    memory, _ = table(capsys, *words, "--classes", 1000)
    assert memory["head.weight"] == pytest.approx(1000 * 512 * 4 / 2**20, abs=0.06)


def test_activations_that_are_computed_again_are_not_kept(capsys):
    pytest.importorskip("torch")
    words = ["-c", "configs/resnet50_imagenet.yaml", "-o", "data.root=/nowhere/imagenet", "-o", "train.batch=4"]
    kept, again = (table(capsys, *words, "-o", f"train.checkpoint_activations={flag}")[0] for flag in (False, True))
    assert again["passes"] < 0.5 * kept["passes"] and again["weights"] == kept["weights"]


def test_a_device(capsys):
    """ResNet-50: 4.09 GMACs forward, so 3 x 8.18 GFLOP per image and update; 312 TFLOP/s of an A100 in fp16."""
    words = [
        "-c",
        "configs/resnet50_imagenet.yaml",
        "--amp",
        "-o",
        "train.batch=64",
        "-o",
        "data.root=/nowhere/imagenet",
    ]
    assert tool.main([*words, "--on", "A100 80GB", "--samples", "1280000"]) == 0
    out = capsys.readouterr().out
    assert "of 80 GiB" in out and "it fits" in out and "program" not in out
    assert "an update of 64 samples is 1.57 TFLOP: at least 5.0 ms at the peak in fp16 (312 TFLOP/s)" in out
    assert "an epoch of 1,280,000 samples: at least 1.68 min" in out
    assert tool.main([*words, "--on", "T4", "-o", "train.batch=1024"]) == 0
    assert "it does not fit" in capsys.readouterr().out


@pytest.mark.parametrize("framework", tool.LOGITS_AT_ONCE)
def test_the_parts_of_logits_are_those_of_the_head(framework):
    """Read from the text, because a process has one framework."""
    text = (ROOT / f"zoo/trainer/{framework}/margin.py").read_text(encoding="utf-8")
    found = re.search(r"^CHUNK_ELEMENTS = 1 << (\d+)\b", text, re.M)
    assert tool.LOGITS_AT_ONCE[framework] == (1 << int(found[1]) if found else None)


def test_logits_beyond_a_chunk_are_not_there_at_once(capsys):
    memory, _ = table(capsys, *SYNTHETIC, "-o", "data.num_classes=2000000", "-o", "train.batch=200")
    assert memory["logits"] == 1024.0


def test_half_precision_copies_rows(capsys):
    full, half = (table(capsys, *SYNTHETIC, *words)[0] for words in ((), ("--amp",)))
    assert half["head.weight, 16 bits"] == pytest.approx(1.5 * full["head.weight"], abs=0.2)
    assert "head.weight, 16 bits" not in full and half["logits"] == full["logits"]


def test_errors_are_one_message(capsys):
    assert tool.main(["-c", "configs/arcface_synthetic.yaml", "--world", "0"]) == 2
    assert "--world" in capsys.readouterr().err
    assert tool.main(["-c", "configs/nothing.yaml"]) == 2
    assert "nothing.yaml" in capsys.readouterr().err
    assert tool.main(["-c", "configs/arcface_ms1m.yaml", "-o", "data.root=/nowhere"]) == 2
    assert "--classes" in capsys.readouterr().err
    assert tool.main(["-c", "configs/arcface_synthetic.yaml", "--on", "Pentium"]) == 2
    assert "--on Pentium" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_the_program_is_measured_from_any_folder(monkeypatch, processes, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert 50 < measure_program("torch", processes) / 2**20 < 2000


def test_a_tiny_run_that_fails_is_reported(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(tool, "TINY_RUN", ["data.identitties=3"])
    with pytest.raises(UserError, match="(?s)tiny run in torch failed.*identitties"):
        measure_program("torch", 1)
