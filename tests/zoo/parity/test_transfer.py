"""zoo parity transfer."""

import numpy as np
import pytest

from zoo import cli
from zoo.data.errors import UserError
from zoo.parity.checkpoints import fit
from zoo.weights import files

TORCH = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width, has_auxiliary):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.bn = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, width)
        self.auxiliary = nn.Linear(width, 5) if has_auxiliary else None
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = torch.relu(self.fc(torch.relu(self.bn(self.conv(x))).mean((2, 3))))
        return self.head(x) if self.auxiliary is None else self.head(x) + self.auxiliary(x)

def build(width=8, has_auxiliary=False):
    return Net(width, has_auxiliary)
"""
PADDLE = """
from paddle import nn
from paddle.nn.functional import relu

class Net(nn.Layer):
    def __init__(self, epsilon):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8, epsilon=epsilon))
        self.hidden = nn.Linear(8, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        return self.out(relu(self.hidden(relu(self.stem(x)).mean((2, 3)))))

def build(epsilon=1e-5):
    return Net(epsilon)
"""
MINDSPORE = """
from mindspore import nn, ops

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True), nn.BatchNorm2d(8))
        self.hidden = nn.Dense(8, 8)
        self.out = nn.Dense(8, 5)

    def construct(self, x):
        return self.out(ops.relu(self.hidden(ops.relu(self.stem(x)).mean((2, 3)))))

build = Net
"""
SHAPES = {
    "conv.weight": (8, 3, 3, 3),
    "conv.bias": (8,),
    "bn.weight": (8,),
    "bn.bias": (8,),
    "bn.running_mean": (8,),
    "bn.running_var": (8,),
    "fc.weight": (8, 8),
    "fc.bias": (8,),
    "head.weight": (5, 8),
    "head.bias": (5,),
}


def weights(**changes):
    generator = np.random.default_rng(0)
    return {name: generator.uniform(0.1, 1, shape).astype(np.float32) for name, shape in (SHAPES | changes).items()}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with models and a checkpoint of the one in PyTorch, which is the current one."""
    for name, text in (("mine.py", TORCH), ("mine_paddle.py", PADDLE), ("mine_mindspore.py", MINDSPORE)):
        (tmp_path / name).write_text(text)
    files.write(str(tmp_path / "in.safetensors"), weights())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def transfer(*words, source="torch=mine.py:build", target="paddle=mine_paddle.py:build"):
    words = [*words, "--from", source, "--to", target, "--input", "x=float32:2,3,8,8"]
    return cli.main(["parity", "transfer", *words])


def test_names_of_a_wrapped_model():
    expected = {"fc.weight": np.zeros((2, 3)), "head.fc.weight": np.zeros((2, 2))}
    plain = {name: array + 1 for name, array in expected.items()}
    assert fit("a.pth", plain, expected) == (plain, [])
    wrapped = {f"model.module.{name}": array for name, array in plain.items()}
    assert fit("a.pth", wrapped | {"step": np.array(3)}, expected) == (plain, ["step"])
    found, others = fit("a.pth", {"module.fc.weight": plain["fc.weight"], "module.fc2.bias": np.zeros(2)}, expected)
    assert list(found) == ["fc.weight"] and others == ["module.fc2.bias"]
    with pytest.raises(UserError, match=r"a.pth: module.fc.weight has the shape \[3, 2\], .* \[2, 3\]; build"):
        fit("a.pth", {"module.fc.weight": np.zeros((3, 2)), "module.head.fc.weight": np.zeros((2, 2))}, expected)


@pytest.mark.parametrize(
    "words, message",
    [
        (["in.safetensors", "--out", "out.h5"], "for paddle, the name must end in .safetensors or .pdparams"),
        (["in.safetensors", "--out", "out.pth"], "for paddle, the name must end in .safetensors or .pdparams"),
        (["in.h5", "--out", "out.pdparams"], "in.h5: the name must end in one of .safetensors, "),
        (["none.pth", "--out", "out.pdparams"], "none.pth: no such file"),
        (["in.safetensors", "--out", "mine.safetensors"], "mine.safetensors exists already and is not overwritten"),
        (["in.safetensors", "--out", "out.pdparams", "--save-map", "mine.py"], "mine.py exists already and is not"),
        (["in.safetensors", "--out", "out.pdparams", "--map", "none.yaml"], "none.yaml"),
    ],
)
def test_what_is_refused_before_a_model_is_built(words, message, place, capsys):
    for name in ("in.h5", "mine.safetensors"):
        (place / name).write_text("mine")
    assert transfer(*words) == 2
    assert message in capsys.readouterr().err
    assert (place / "mine.safetensors").read_text() == "mine" and not (place / "out.pdparams").exists()


@pytest.mark.parametrize("title", ["torch:bf16", "torch:compile"])
def test_sides_that_move_no_weights(title, place, capsys):
    assert transfer("in.safetensors", "--out", "out.pdparams", source=f"{title}=mine.py:build") == 2
    assert f"{title}: weights are moved in fp32, and not compiled" in capsys.readouterr().err


@pytest.mark.slow
def test_from_torch_to_paddle_and_mindspore_and_back(place, capsys):
    assert transfer("in.safetensors", "--out", "out.pdparams", "--save-map", "names.yaml") == 0
    assert "10 tensors found by order (10)\nwrote out.pdparams: its outputs are equal" in capsys.readouterr().out
    expected, moved = weights(), files.read("out.pdparams")[0]
    np.testing.assert_array_equal(moved["hidden.weight"], expected["fc.weight"].T)
    np.testing.assert_array_equal(moved["stem.1._variance"], expected["bn.running_var"])
    assert '"hidden.weight": "fc.weight"\n' in (place / "names.yaml").read_text()
    paddle, mindspore = "paddle=mine_paddle.py:build", "mindspore=mine_mindspore.py:build"
    assert transfer("out.pdparams", "--out", "out.ckpt", source=paddle, target=mindspore) == 0
    np.testing.assert_array_equal(files.read("out.ckpt")[0]["stem.1.gamma"], expected["bn.weight"])
    for name in ("out.pth", "out.safetensors"):
        assert transfer("out.ckpt", "--out", name, source=mindspore, target="torch=mine.py:build") == 0
        back = files.read(name)[0]
        assert back.keys() - expected.keys() == {"bn.num_batches_tracked"}
        for key, value in expected.items():
            np.testing.assert_array_equal(back[key], value)


@pytest.mark.slow
def test_outputs_that_differ(place, capsys):
    assert transfer("in.safetensors", "--out", "out.pdparams", target="paddle=mine_paddle.py:build(1e-3)") == 1
    printed = capsys.readouterr().out
    assert "wrote out.pdparams, BUT ITS OUTPUTS DIFFER by " in printed
    assert "\nbn (BatchNorm2d / BatchNorm2D): its output differs by " in printed
    np.testing.assert_array_equal(files.read("out.pdparams")[0]["stem.1.weight"], weights()["bn.weight"])


@pytest.mark.slow
def test_what_is_ambiguous_is_given(place, capsys):
    """The model has two heads, of which the other one has one."""
    two = "torch=mine.py:build(has_auxiliary=True)"
    files.write("two.safetensors", weights(**{"auxiliary.weight": (5, 8), "auxiliary.bias": (5,)}))
    assert transfer("two.safetensors", "--out", "out.pdparams", "--save-map", "names.yaml", source=two) == 2
    assert "out.weight could be head.weight, auxiliary.weight of the reference" in capsys.readouterr().err
    saved = (place / "names.yaml").read_text()
    assert '# "out.weight": one of ["head.weight", "auxiliary.weight"]\n' in saved
    (place / "names.yaml").write_text(saved + '"out.weight": "head.weight"\n"out.bias": "head.bias"\n')
    assert transfer("two.safetensors", "--out", "out.pdparams", "--map", "names.yaml", source=two) == 1
    assert "left out, since paddle has not got them: auxiliary.weight, auxiliary.bias\n" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "content, source, message",
    [
        ({"fc.weight": (8, 9)}, "torch=mine.py:build", "fc.weight has the shape [8, 9], but the model's has [8, 8]"),
        ({"fc.weight": None}, "torch=mine.py:build", "lacks 1 tensors of the model, such as fc.weight"),
        ({}, "torch=mine.py:build(width=9)", "tensors have no counterpart in the reference, such as stem.0.weight"),
    ],
)
def test_files_and_models_that_do_not_fit(content, source, message, place, capsys):
    kept = {name: shape for name, shape in (SHAPES | content).items() if shape is not None}
    files.write("other.safetensors", {name: np.ones(shape, np.float32) for name, shape in kept.items()})
    assert transfer("other.safetensors", "--out", "out.pdparams", source=source) == 2
    assert message in capsys.readouterr().err and not (place / "out.pdparams").exists()


JAX = """
import jax
from flax import nnx

class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(3, 8, (3, 3), padding="VALID", rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.hidden, self.out = nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        x = jax.nn.relu(self.norm(self.conv(x.transpose(0, 2, 3, 1)))).mean((1, 2))
        return self.out(jax.nn.relu(self.hidden(x)))
"""


@pytest.mark.slow
def test_to_jax_and_back(place):
    pytest.importorskip("flax")
    (place / "mine_jax.py").write_text(JAX)
    assert transfer("in.safetensors", "--out", "jax.safetensors", target="jax=mine_jax.py:Net") == 0
    expected, moved = weights(), files.read("jax.safetensors")[0]
    np.testing.assert_array_equal(moved["conv.kernel"], expected["conv.weight"].transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(moved["norm.var"], expected["bn.running_var"])
    assert (
        transfer("jax.safetensors", "--out", "out.pth", source="jax=mine_jax.py:Net", target="torch=mine.py:build") == 0
    )
    back = files.read("out.pth")[0]
    for key, value in expected.items():
        np.testing.assert_array_equal(back[key], value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_weights_of_an_onnx_file(place, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(place)
    import mine

    net, x = mine.build().eval(), torch.zeros(2, 3, 8, 8)
    net.load_state_dict({name: torch.from_numpy(array) for name, array in weights().items()}, strict=False)
    torch.onnx.export(net, (x,), "net.onnx", dynamo=False, training=torch.onnx.TrainingMode.PRESERVE)
    assert transfer("net.onnx", "--out", "out.pdparams", source="onnx=net.onnx") == 0
    np.testing.assert_array_equal(files.read("out.pdparams")[0]["hidden.weight"], weights()["fc.weight"].T)
    assert (
        transfer("out.pdparams", "--out", "b.safetensors", source="paddle=mine_paddle.py:build", target="onnx=net.onnx")
        == 0
    )
    np.testing.assert_array_equal(files.read("b.safetensors")[0]["fc.weight"], weights()["fc.weight"])
