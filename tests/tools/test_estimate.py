"""Estimates: exact where they can be computed, against PyTorch's own tensors where they cannot."""

import re

import pytest

from data.errors import UserError
from tools import estimate as tool
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
        capsys, "-c", "configs/arcface_synthetic.yaml", "-o", "model.variant=insightface", "-o", "train.batch=2"
    )
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


def test_activations_are_what_pytorch_saves():
    """As with real tensors; 16 bits save less."""
    torch = pytest.importorskip("torch")
    from data.batch import Field
    from zoo.models.resnet import spec
    from zoo.models.resnet.torch import Model

    arch = spec.Arch(depth=18, width=8, num_classes=5)
    field = Field("image", (32, 32, 3), "uint8", (0.5,) * 3, (0.5,) * 3)
    size, half_size = (tool.measure_activations("resnet", arch, (), field, 64, is_half) for is_half in (False, True))
    model, saved = Model(arch).train(), {}
    weights = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def save(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        model(torch.randn(64, 3, 32, 32))
    expected = sum(size for pointer, (size, _) in saved.items() if pointer not in weights)
    assert size == pytest.approx(expected, rel=0.02)
    assert 0.4 * size < half_size < 0.8 * size


def test_errors_are_one_message(capsys):
    assert tool.main(["-c", "configs/arcface_synthetic.yaml", "--world", "0"]) == 2
    assert "--world" in capsys.readouterr().err
    assert tool.main(["-c", "configs/nothing.yaml"]) == 2
    assert "nothing.yaml" in capsys.readouterr().err
    assert tool.main(["-c", "configs/arcface_ms1m.yaml", "-o", "data.root=/nowhere"]) == 2
    assert "/nowhere" in capsys.readouterr().err


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
