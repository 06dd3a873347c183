"""Differences whose cause is known by arithmetic."""

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from tests.zoo.parity.fact_cases import EXAMPLES, Example, example, normal, output, values
from zoo.parity import facts
from zoo.parity.formulas import losses, optimizers
from zoo.parity.formulas.formula import Case, Formula, Number, Options, Settings

COMPUTED = [fact for fact in facts.facts() if fact.formula]


def explained(fact: facts.Fact, made: Example, reference: np.ndarray, suspect: np.ndarray) -> facts.Guess | None:
    """Return what is found for two outputs of a fact's formula, by the formulas of its kind."""
    case = Case(made.kind, made.inputs, made.params, reference, suspect, made.training)
    for formulas in (losses.FORMULAS, optimizers.UPDATES, [optimizers.STATISTICS]):
        if fact.formula in {formula.name for formula in formulas}:
            return facts.explain_by([beginning_with(made.settings, formula) for formula in formulas], case)
    return facts.explain(case)


def beginning_with(settings: Settings, formula: Formula) -> Formula:
    """Return a formula whose options begin with some settings, which several explanations are then told apart by."""

    def options(case: Case) -> Options | None:
        return {
            name: values if name not in settings else first(settings[name], values)
            for name, values in (formula.options(case) or {}).items()
        } or None

    return formula._replace(options=options)


def first(value: Any, values: Any) -> Any:
    if isinstance(values, Number):
        return values._replace(starts=tuple(dict.fromkeys((value, *values.starts))))
    return tuple(dict.fromkeys((value, *values)))


@pytest.mark.parametrize("most", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fact", COMPUTED, ids=lambda fact: fact.name)
def test_each_value_beside_each_other_is_named(fact, most):
    made = example(fact)
    outputs = [(value, output(fact, made, value)) for value in values(fact, made)]
    outputs = [(value, result) for value, result in outputs if result is not None]
    assert len(outputs) > 1
    count = min(most, 3) if fact.subject == "recurrent" else most
    for (a, reference), (b, suspect) in permutations(outputs[:count], 2):
        named = facts.fact_of(facts.Change(fact.formula, fact.option, a, b, fact.when))
        if same(reference, suspect) or named is not fact:
            continue
        guess = explained(fact, made, reference, suspect)
        assert guess is not None and guess.fact == fact.name, (a, b, guess)
        ways = [[fact.words(value) for value, result in outputs if same(result, side)] for side in (reference, suspect)]
        assert any(guess.cause == f"{fact.what} is {theirs} instead of {ours}" for ours, theirs in product(*ways)), (
            guess
        )


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-14, atol=0, equal_nan=True)


def test_two_options_at_once_are_named():
    made, eps, ddof = EXAMPLES["layer_norm"], fact_of("layer-norm-epsilon"), fact_of("norm-variance")
    reference = output(eps, made, 1e-5)
    suspect = output(eps, made._replace(settings={"ddof": 1}), 1e-3)
    guess = explained(eps, made, reference, suspect)
    assert guess is not None and guess.fact == f"{eps.name}, {ddof.name}"


def test_a_decay_is_named_beside_a_rate_and_a_momentum_that_both_sides_have():
    fact = fact_of("sgd-decay")
    made = EXAMPLES["sgd"]._replace(settings={"lr": 0.02, "momentum": 0.8})
    guess = explained(fact, made, output(fact, made, 0.01), output(fact, made, 0.0))
    assert guess is not None and guess.cause == "the weight decay of SGD is 0 instead of 0.01"


def test_the_remedy_is_the_code_of_the_suspects_framework():
    fact = fact_of("layer-norm-epsilon")
    made = example(fact)
    reference, suspect = output(fact, made, 1e-5), output(fact, made, 1e-3)
    for framework, code in {
        "torch": "nn.LayerNorm(n, eps=1e-05)",
        "mindspore": "nn.LayerNorm((n,), epsilon=1e-05)",
    }.items():
        guess = facts.explain(Case("LayerNorm", made.inputs, made.params, reference, suspect), framework)
        assert guess is not None and guess.remedy == code


def test_the_remedy_of_a_library_of_jax_may_be_a_function_of_jax():
    fact = fact_of("gelu")
    made = example(fact)
    reference, suspect = (output(fact, made, value) for value in ("gelu", "gelu_tanh"))
    guess = facts.explain(Case("GELU", made.inputs, {}, reference, suspect), "flax")
    assert guess is not None and guess.remedy == "jax.nn.gelu(x, approximate=False)"


def fact_of(name: str) -> facts.Fact:
    return next(fact for fact in facts.facts() if fact.name == name)


SPOILT = {
    "square": np.square,
    "noise": lambda y: y + 1e-3 * np.abs(y).max() * normal(*y.shape),
    "some": lambda y: np.where(normal(*y.shape) > 1, 1.1 * y, y),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize(
    "name", ["layer_norm", "batch_norm", "convolution", "gate", "lstm", "attention", "resize", "pool"]
)
def test_what_no_option_gives_is_not_explained(name, spoil):
    fact = next(fact for fact in COMPUTED if fact.formula == name)
    made = example(fact)
    reference = output(fact, made, values(fact, made)[0])
    assert explained(fact, made, reference, spoil(reference)) is None


def test_numbers_of_a_narrower_type_are_seen():
    x = normal(4, 6)
    guess = facts.explain(Case("Linear", [x], {}, x**3, (x**3).astype(np.float32)))
    assert guess == ("precision", "the precision of all numbers of an output is that of fp32", "")


def test_a_difference_in_few_elements_is_explained():
    """The search looks at a part of a tensor, which holds the difference."""
    x = np.minimum(normal(3, 8, 40, 40), 5.0)
    x[2, 7, 39, 39] = 7.0
    guess = facts.explain(Case("ReLU6 ReLU", [x], {}, x.clip(0, 6), x.clip(0)))
    assert guess is not None and guess.cause == "the activation is ReLU instead of ReLU6"


def test_numbers_that_differ_in_their_last_digits():
    fact = fact_of("hard-sigmoid-slope")
    made = example(fact)
    guess = explained(fact, made, output(fact, made, 1 / 6), output(fact, made, 0.1666667))
    assert guess is not None and guess.cause.endswith("is 0.1666667 instead of 0.16666666666666666")
