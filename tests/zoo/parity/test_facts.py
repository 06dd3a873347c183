"""Differences whose cause is known by arithmetic."""

import numpy as np
import pytest

from zoo.parity import facts
from zoo.parity.formulas.formula import Case, Number

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def outputs(name: str, case: Case, *settings: dict) -> list[np.ndarray]:
    """Return the outputs of a formula with settings in place of the usual ones."""
    formula = next(formula for formula in facts.LAYERS if formula.name == name)
    options = formula.options(case)
    usual = {key: values.starts[0] if isinstance(values, Number) else values[0] for key, values in options.items()}
    return [formula.compute(case, **usual | changed) for changed in settings]


def test_one_option_and_two_are_named():
    x, params = normal(4, 7, 6), {"weight": normal(6), "bias": normal(6)}
    case = Case("LayerNorm", [x], params, x, x, target=x)
    usual, small, two = outputs("layer_norm", case, {}, {"eps": 1e-3}, {"eps": 1e-6, "ddof": 1})
    guess = facts.explain("LayerNorm", [x], params, usual, small, framework="torch")
    assert guess == (
        "layer-norm-epsilon",
        "epsilon of LayerNorm is 0.001 instead of 1e-05",
        "nn.LayerNorm(6, eps=1e-05)",
    )
    guess = facts.explain("LayerNorm", [x], params, usual, two)
    assert guess is not None and "1e-06 instead of 1e-05 and " in guess.cause


@pytest.mark.parametrize("spoil", [np.square, lambda y: y + 1e-3 * RNG.normal(size=y.shape), lambda y: 1.01 * y])
def test_what_no_option_gives_is_not_explained(spoil):
    x, params = normal(4, 7, 6), {"weight": normal(6), "bias": normal(6)}
    (usual,) = outputs("layer_norm", Case("LayerNorm", [x], params, x, x, target=x), {})
    assert facts.explain("LayerNorm", [x], params, usual, spoil(usual)) is None


def test_numbers_of_a_narrower_type_are_seen():
    x = normal(4, 6)
    guess = facts.explain("Linear", [x], {}, x**3, (x**3).astype(np.float32))
    assert guess == ("precision", "the precision of the numbers is that of fp32", "")
