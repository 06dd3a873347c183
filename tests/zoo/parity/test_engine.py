"""Comparisons of models in PyTorch, Paddle and MindSpore: what is found, and that nothing else is."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.cli import call_zoo
from zoo import parity
from zoo.data.errors import UserError
from zoo.optim import OPTIMIZERS
from zoo.parity import losses, search, updates
from zoo.parity.engine import Opened, _dropout, request_of
from zoo.parity.session import Session
from zoo.parity.side import parse

NETS = Path(__file__).with_name("nets")
INPUTS = {"x": "float32:4,3,16,16", "label": "int64:4:0:5"}
TWO = {"torch": "a.py:Net", "paddle": "b.py:Net"}
# What a port gets wrong, and the modules and the causes that are named
FAULTS = {
    "self.norm1 = nn.LayerNorm(width, eps=1e-6)": "self.norm1 = nn.LayerNorm(width)",
    "F.gelu(self.fc1(self.norm2(x)))": 'F.gelu(self.fc1(self.norm2(x)), approximate="tanh")',
    "(c // self.heads) ** -0.5": "c**-0.5",
    "nn.BatchNorm2d(12)": "nn.BatchNorm2d(12, momentum=0.01)",
    "nn.Dropout(0.1)": "nn.Dropout(0.2)",
    "x.mean(1)": "0.5 * x.mean(1)",
    'inputs["label"])': 'inputs["label"], label_smoothing=0.1)',
    "momentum=0.9)": "momentum=0.9, nesterov=True)",
}
FOUND = {
    ("blocks.0.norm1", "blocks.1.norm1"): "epsilon of LayerNorm is 1e-05 instead of 1e-06",
    ("blocks.0.fc2", "blocks.1.fc2"): "GELU is that by tanh instead of that by erf",
    ("blocks.0.out", "blocks.1.out"): "sqrt(C) of all heads instead of sqrt(D) of a head",
    ("head",): "it is 0.5 times the others'",
    ("bn",): "0.01",
    ("loss",): "0.1",
    ("optimizer",): "esterov",
}


def side(framework, path=None):
    return f"{path or NETS / f'net_{framework}.py'}:Net"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (({"torch": "a.py:Net"}, INPUTS), "two sides at least"),
        ((TWO, {}), "--input: at least one"),
        ((TWO, INPUTS, "cross_entropi"), "did you mean cross_entropy"),
        ((TWO, {"x": "float32:2"}, "mse"), "--input label="),
        ((TWO, INPUTS, {"torch": "a.py:loss"}), "paddle lacks it"),
        ((TWO, INPUTS, {"torhc": "a.py:loss"}), "no such side"),
        ((TWO, INPUTS, None, "sgd(rate=1)"), "rate"),
        ((TWO, INPUTS, None, "sgd(lr=high)"), "with numbers"),
        ((TWO, INPUTS, None, None, 2), "name one by --optimizer"),
        ((TWO, INPUTS, None, "sgd(lr=1)", 0), "one at least"),
        ((TWO, {"x": "float32:2,0"}), "no elements"),
        ((TWO, {"x": "float32:2:1:0"}), "HIGH is above LOW"),
        ((TWO, {"x": "int64:2:0.2:0.7"}), "no integer"),
        ((TWO, {"x": np.array([1, np.nan])}), "has NaN"),
        (({"torhc": "a.py:Net", "paddle": "b.py:Net"}, INPUTS), "torch"),
        (({"torch:cpu:cuda": "a.py:Net", "paddle": "b.py:Net"}, INPUTS), "one device"),
        (({"torch:fp32:bf16": "a.py:Net", "paddle": "b.py:Net"}, INPUTS), "one precision"),
        (({"torch:": "a.py:Net", "paddle": "b.py:Net"}, INPUTS), "one device"),
        ((TWO, INPUTS, np.square), "a function for each side, as {'torch': "),
    ],
)
def test_a_request_that_cannot_be_meant_says_what_to_write(arguments, message):
    with pytest.raises(UserError, match=message):
        request_of(*arguments)


@pytest.mark.parametrize("name", ["cut.npy", "cut.npz"])
def test_a_damaged_file_of_inputs_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04" * name.endswith("z"))
    with pytest.raises(UserError, match=f"{name} cannot be read"):
        request_of(TWO, {"x": str(tmp_path / name)})


@pytest.mark.parametrize(
    ("loss", "shape", "label", "message"),
    [
        ("mse", (3, 1), np.zeros(3), "the output has the shape"),
        ("binary_cross_entropy", (3, 1), np.zeros(3), "the output has the shape"),
        ("cross_entropy", (3,), np.zeros(3, int), "the output has the shape"),
        ("cross_entropy", (3, 2), np.array([0, 1, 2]), "label is 0 to 2, and the output has 2 classes"),
        ("cross_entropy", (3, 2), np.array([0, 1, -100]), "label is -100 to 1"),
    ],
)
def test_a_label_that_does_not_fit_the_output_is_refused(loss, shape, label, message):
    weighting = losses.Weighting(loss, {"label": label}, lambda index, output: tuple(range(output.ndim)))
    with pytest.raises(UserError, match=message):
        weighting([np.zeros(shape)])


def test_a_side_that_ended_says_so_though_it_read_no_request(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    session = Session(parse("torch", "a.py:Net")._replace(python=str(program)), tmp_path / "side")
    session.process.wait()
    with pytest.raises(UserError, match="torch: its process ended with 3"):
        session.ask({})
    session.close()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_of_the_zoo_updates_all_parameters(name):
    class Model:
        def __init__(self):
            self.weights = {"filter": np.ones((4, 3, 3, 3)), "bias": np.ones(4)}

        def arrays(self):
            return dict(self.weights)

        def load(self, arrays):
            self.weights = dict(arrays)

    model = Model()
    rng = np.random.default_rng(0)
    updates.Optimizer(f"{name}(lr=0.1)", model).step({k: rng.normal(size=v.shape) for k, v in model.weights.items()})
    assert all((value != 1).all() and np.isfinite(value).all() for value in model.weights.values())


@pytest.mark.parametrize(
    "option, message", [("--input", "'paddel' is no framework"), ("--inptu", "did you mean --input")]
)
def test_sides_may_stand_around_options(capsys, option, message):
    assert call_zoo("parity", "torch=a.py:Net", option, "x=float32:2", "paddel=b.py:Net") == 2
    assert message in capsys.readouterr().err


def test_inputs_are_the_same_for_a_seed_and_named():
    first, again, other = (request_of(TWO, INPUTS, seed=seed).inputs for seed in (0, 0, 1))
    np.testing.assert_array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])
    assert set(np.unique(first["label"])) <= set(range(5))


def test_dropout_of_other_names_is_compared_in_its_order():
    def opened(rates):
        return Opened(None, None, (), True, rates)

    assert _dropout(opened({"a": 0.1, "b": 0.2}), opened({"b": 0.2, "a": 0.3})) == {"a": (0.1, 0.3)}
    assert _dropout(opened({"a": 0.1, "b": 0.2}), opened({"c": 0.1, "d": 0.5})) == {"b": (0.2, 0.5)}
    assert _dropout(opened({"a": 0.1}), opened({"c": 0.3, "d": 0.5})) == {}


def test_parts_are_channels_that_may_have_been_concatenated():
    source, reference = np.zeros((2, 3, 4, 4)), np.ones((2, 8, 2, 2))
    for first, expected in ((1, [slice(0, 3)]), (6, [slice(5, 8)]), (3, [])):
        own = reference.copy()
        own[:, first] = 2
        assert search.parts([source], reference, own) == [..., *((slice(None), part) for part in expected)]
    assert search.parts([source], reference, reference[:1]) == [...]


@pytest.mark.parametrize(
    "kind, code",
    [("BatchNorm1D", "nn.BatchNorm1D(n)"), ("BatchNorm", "nn.BatchNorm2D(n)"), ("Conv1D", "nn.BatchNorm2D(n)")],
)
def test_the_remedy_names_the_class_of_the_module(kind, code):
    assert search.of_class("nn.BatchNorm2D(n)", kind) == code


def test_channels_of_a_batch():
    image = np.zeros((2, 3, 4, 5))
    assert search.channels_second(image, 3) is image and search.channels_second(image[:, :, 0, 0], 3).shape == (2, 3)
    assert search.channels_second(image, 5).shape == (2, 5, 3, 4)


@pytest.mark.slow
def test_all_faults_of_a_port_are_found_at_once(tmp_path):
    text = (NETS / "net_torch.py").read_text()
    for old, new in FAULTS.items():
        assert text.count(old) == 1 or "Dropout" in old
        text = text.replace(old, new)
    port = tmp_path / "port.py"
    port.write_text(text)
    own = {"torch": NETS / "net_torch.py", "torch@port": port}
    options = {key: {title: f"{path}:{key}" for title, path in own.items()} for key in ("loss",)}
    optimizers = {title: f"{path}:optimizers" for title, path in own.items()}
    sides = {title: f"{path}:Net" for title, path in own.items()}
    (judged,) = parity.compare(sides, INPUTS, **options, optimizer=optimizers).sides
    found = {finding.modules: finding.cause for finding in judged.findings}
    assert found.keys() == FOUND.keys(), str(judged)
    for modules, cause in FOUND.items():
        assert cause in found[modules], (modules, found[modules])
    assert judged.dropout == {"blocks.0.drop": (0.1, 0.2), "blocks.1.drop": (0.1, 0.2)}
    assert all(any(str(port) in place for place in finding.places) for finding in judged.findings)
    with pytest.raises(AssertionError, match="GELU is that by tanh"):
        parity.assert_same(sides, {"x": INPUTS["x"]})


POOLED = """
from torch import nn

def build(ceil_mode=False):
    first = [nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(3, 2, ceil_mode=ceil_mode), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*first, nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 5, 1))
"""


@pytest.mark.slow
def test_pooling_to_another_size_is_the_only_finding(tmp_path):
    (tmp_path / "net.py").write_text(POOLED)
    net = f"{tmp_path / 'net.py'}:build"
    (judged,) = parity.compare({"torch": net, "torch@port": f"{net}(ceil_mode=True)"}, {"x": "float32:2,3,8,10"}).sides
    assert [(each.modules, each.cause) for each in judged.findings] == [(("1",), "ceil_mode is True instead of False")]


DECAYED = """
import torch
from mindspore import nn

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, has_bias=True), nn.BatchNorm2d(4)

    def construct(self, x):
        return self.bn(self.conv(x))

def build():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding="same"), torch.nn.BatchNorm2d(4))

def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.02)

def momentum(model, grouped=False):
    parameters = model.trainable_params()
    return nn.Momentum([{"params": parameters}] if grouped else parameters, 0.01, 0.9, weight_decay=0.02)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mindspore") is None, reason="needs MindSpore")
def test_parameters_that_mindspore_does_not_decay_are_named(tmp_path):
    (tmp_path / "decayed.py").write_text(DECAYED)
    sides = {"torch": f"{tmp_path}/decayed.py:build", "mindspore": f"{tmp_path}/decayed.py:Net"}
    accepted = ("running-variance", "batch-norm-momentum")
    for grouped, expected in ((False, 1), (True, 0)):
        own = {"torch": f"{tmp_path}/decayed.py:sgd", "mindspore": f"{tmp_path}/decayed.py:momentum(grouped={grouped})"}
        found = parity.compare(sides, {"x": "float32:2,3,8,6"}, optimizer=own, accept=accepted).sides[0].findings
        assert len([each for each in found if each.modules == ("optimizer",)]) == expected, found
        if expected:
            decay = re.match(r"the weight decay of SGD is (\S+) instead of 0.02, for ", found[-1].cause)
            assert decay and float(decay[1]) < 1e-5  # fp32 rounds smaller ones away
            assert found[-1].cause.endswith("1.bias, 1.weight") and "0.bias" not in found[-1].cause
            assert "[{'params': params}]" in found[-1].remedy


def test_a_side_needs_numpy_and_safetensors_alone(tmp_path):
    """Its interpreter sees nothing else that is installed."""
    packages, python, net = tmp_path / "packages", tmp_path / "python", tmp_path / "net.py"
    packages.mkdir()
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs", "safetensors"):
        (packages / name).symlink_to(installed / name)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o700)
    net.write_text("def build():\n    return lambda x: x + 1\n")
    sides = {"numpy": f"{net}:build", "numpy@bare": f"{net}:build"}
    parity.assert_same(sides, {"x": "float32:2,3"}, python={"numpy@bare": str(python)})


@pytest.mark.slow
def test_equal_models_agree_but_for_known_differences():
    frameworks = ("torch", "paddle")
    sides = {name: side(name) for name in frameworks}
    losses = {name: f"{NETS / f'net_{name}.py'}:loss" for name in frameworks}
    optimizers = {name: f"{NETS / f'net_{name}.py'}:optimizers" for name in frameworks}
    (judged,) = parity.compare(sides, INPUTS, loss=losses, optimizer=optimizers).sides
    assert [(finding.modules, finding.fact) for finding in judged.findings] == [(("bn",), "running-variance")]
    assert judged.is_explained
    parity.assert_same(sides, INPUTS, loss="cross_entropy", optimizer="adamw(lr=0.01)", accept=["running-variance"])


@pytest.mark.slow
def test_a_framework_without_fp64_agrees_in_fp32():
    sides = {name: side(name) for name in ("torch", "mindspore")}
    parity.assert_same(sides, INPUTS, loss="cross_entropy", optimizer="sgd(lr=0.1, momentum=0.9)")


def test_a_term_that_is_left_out_is_named():
    a, b, c = np.random.default_rng(0).normal(size=(3, 4, 5))
    terms = {"the output of a": a, "the output of b": b, "the input of c": None}
    assert search.of_sum(a + b, b, terms, 1e-6).cause == "the output of a is not added"
    assert search.of_sum(a, a + b, terms, 1e-6).cause == "the output of b is added, too"
    assert search.of_sum(a + c, c, {"the output of b": b}, 1e-6) is None
    assert search.of_sum(a, 2 * b, terms, 1e-6) is None


@pytest.mark.slow
def test_the_dropout_of_an_attention_is_left_out_and_its_rate_compared(tmp_path):
    net = tmp_path / "net.py"
    net.write_text(
        "from torch import nn\n\n\ndef build(rate=0.1):\n"
        "    return nn.TransformerEncoderLayer(8, 2, 16, dropout=rate, batch_first=True)\n"
    )
    inputs = {"src": "float32:4,6,8"}
    parity.assert_same({"torch": f"{net}:build", "torch@same": f"{net}:build"}, inputs)
    (judged,) = parity.compare({"torch": f"{net}:build", "torch@other": f"{net}:build(0.2)"}, inputs).sides
    assert not judged.findings and judged.dropout.pop("self_attn") == (0.1, 0.2) and len(judged.dropout) == 3
