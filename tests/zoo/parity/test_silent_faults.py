"""Faults and habits of small models that a comparison module by module could miss, or take for a difference."""

import pytest

from zoo import parity
from zoo.data.errors import UserError

NETS = '''
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, detach=False, freeze=False, more=False, factor=1.0, mean=False):
        super().__init__()
        self.first, self.bn, self.last = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.detach, self.more, self.factor, self.mean = detach, more, factor, mean
        self.first.requires_grad_(not freeze)

    def forward(self, x):
        x = self.bn(self.first(x))
        x = self.factor * self.last(x.detach() if self.detach else x)
        x = x.square().mean() if self.mean else x
        return (x, x + 1) if self.more else x


class Shortcut(nn.Module):
    """Its activation changes the tensor that the shortcut adds."""

    def __init__(self):
        super().__init__()
        self.first, self.relu, self.last = nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 6)

    def forward(self, x):
        x = self.first(x)
        return x + self.last(self.relu(x))


class Masked(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.first, self.add, self.last, self.factor = nn.Linear(5, 5), Add(), nn.Linear(5, 3), factor

    def forward(self, x):
        mask = torch.full_like(x, torch.finfo(x.dtype).min).triu(1)
        x = self.factor * self.first(x)
        return self.last(self.add(x, mask).softmax(-1))


class Add(nn.Module):
    def forward(self, x, mask):
        return x + mask


class Named(nn.Module):
    def __init__(self, keys):
        super().__init__()
        self.layers, self.keys = nn.ModuleDict({"main": nn.Linear(5, 3), "aux": nn.Linear(5, 3)}), keys

    def forward(self, x):
        return {key: self.layers[key](x) for key in self.keys}


def decay(model):
    return torch.optim.AdamW(model.parameters(), weight_decay=0.1)


def decay_of_matrices(model):
    matrices = [each for each in model.parameters() if each.ndim > 1]
    others = {"params": [each for each in model.parameters() if each.ndim < 2], "weight_decay": 0.0}
    return torch.optim.AdamW([{"params": matrices}, others], weight_decay=0.1)


def two_settings(model):
    matrices = [each for each in model.parameters() if each.ndim > 1]
    others = {"params": [each for each in model.parameters() if each.ndim < 2], "weight_decay": 0.0, "lr": 2e-3}
    return torch.optim.AdamW([{"params": matrices}, others], weight_decay=0.2)


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8, weight_decay=0.03)


def momentum_of_matrices(model):
    matrices = [each for each in model.parameters() if each.ndim > 1]
    others = {"params": [each for each in model.parameters() if each.ndim < 2], "weight_decay": 0.0}
    return torch.optim.SGD([{"params": matrices}, others], lr=0.02, momentum=0.8, weight_decay=0.03)


def nothing():
    return None


def no_loss(outputs, inputs):
    outputs.sum()
'''


@pytest.fixture
def compare(tmp_path):
    """Return a function that compares two models, and returns the result and the places of all findings."""
    path = tmp_path / "nets.py"
    path.write_text(NETS)

    def compared(first, second, inputs=None, precision="", **others):
        sides = {f"torch@a{precision}": f"{path}:{first}", f"torch@b{precision}": f"{path}:{second}"}
        return parity.compare(sides, inputs or {"x": "float32:5,5"}, **others).sides[0]

    compared.path = path
    return compared


def test_a_parameter_that_gets_no_gradient(compare):
    judged = compare("Net", "Net(detach=True)")
    assert not judged.agrees and judged.findings[0].modules[:1] == ("bn",) and "it is 0" in str(judged)


@pytest.mark.slow
def test_a_frozen_parameter(compare):
    judged = compare("Net", "Net(freeze=True)")
    assert (
        not judged.agrees and judged.frozen == ["first.weight", "first.bias"] and "frozen by the other" in str(judged)
    )


@pytest.mark.slow
def test_a_name_that_is_accepted_exists(compare):
    with pytest.raises(UserError, match="no module or fact 'bm'"):
        compare("Net", "Net", accept=["bm"])
    assert compare("Net", "Net", accept=["loss", "optimizer", "bn", "", "running-variance"]).agrees


def test_another_number_of_outputs_is_said(compare):
    assert "2 outputs instead of 1, of which 1 are compared" in str(compare("Net", "Net(more=True)"))


@pytest.mark.slow
def test_a_model_that_returns_one_number(compare):
    assert compare("Net(mean=True)", "Net(mean=True)").agrees
    judged = compare("Net(mean=True)", "Net(mean=True, factor=1.1)")
    assert not judged.agrees and judged.findings[0].cause == ""  # one number is some number of times any other


@pytest.mark.slow
def test_outputs_of_dictionaries_are_paired_by_their_keys(compare):
    judged = compare('Named(("main", "aux"))', 'Named(("aux", "main"))')
    assert judged.agrees, str(judged)


def test_an_activation_in_place(compare):
    assert compare("Shortcut", "Shortcut").agrees


@pytest.mark.slow
def test_a_mask_of_the_largest_numbers_is_no_measure(compare):
    assert compare("Masked", "Masked").agrees
    judged = compare("Masked", "Masked(1.001)")
    (finding,) = judged.findings
    assert finding.modules == ("add",) and finding.what == "input"
    assert finding.places[0].endswith("nets.py:39-40")  # from the layer before to the call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of_all", "cause"),
    [
        ("decay", "the weight decay of AdamW is 0.1 instead of 0"),
        ("momentum", "the weight decay of SGD is 0.03 instead of 0"),
    ],
)
@pytest.mark.parametrize("precision", ["", ":fp32"])
def test_the_parameters_that_are_decayed_are_named(compare, of_all, cause, precision):
    optimizer = {
        f"torch@a{precision}": f"{compare.path}:{of_all}_of_matrices",
        f"torch@b{precision}": f"{compare.path}:{of_all}",
    }
    (finding,) = compare("Net", "Net", optimizer=optimizer, precision=precision).findings
    assert finding.modules == ("optimizer",)
    assert finding.cause == f"{cause}, for bn.bias, bn.weight, first.bias and 1 more"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["", ":fp32"])
def test_causes_of_matrices_and_of_vectors_are_both_named(compare, precision):
    names = {"a": "decay_of_matrices", "b": "two_settings"}
    optimizer = {f"torch@{side}{precision}": f"{compare.path}:{name}" for side, name in names.items()}
    (finding,) = compare("Net", "Net", optimizer=optimizer, precision=precision).findings
    of_matrices, of_vectors = finding.cause.split("; ")
    assert of_matrices.startswith("the weight decay of AdamW is 0.2 instead of 0.1, for first.weight")
    assert of_vectors.startswith("the learning rate is 0.002 instead of 0.001, for bn.bias, bn.weight")


@pytest.mark.slow
def test_functions_that_return_nothing(compare):
    with pytest.raises(UserError, match="nothing returns None, and no model"):
        compare("Net", "nothing")
    loss = dict.fromkeys(("torch@a", "torch@b"), f"{compare.path}:no_loss")
    with pytest.raises(UserError, match="no_loss returns None, and no loss"):
        compare("Net", "Net", loss=loss)
