"""Run the code of the facts in a framework beside the formulas: python -m tests.zoo.parity.fact_worker FRAMEWORK

It prints a line of JSON for each piece of code: the fact, the library, the code, its error, and whether it gave the
numbers of the formula or, of a check, is true.
"""

import json
import re
import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from tests.zoo.parity.fact_cases import example, normal, output, values
from tests.zoo.parity.fact_libraries import MADE, OF_JAX, Library, helpers
from zoo.parity import facts
from zoo.parity.facts import IN_FP32, Cell, Fact

UPDATES = ("sgd", "adam", "by_squares")  # formulas of optimizers
CLIP, STATISTICS = "clip", "running_statistics"
TOLERANCE, IN_FP32_UPDATES = 2e-6, 3e-4  # of the largest value; changes of weights that are 1000 times as large
CHANNELS_LAST = ("flax", "equinox")  # whose layers take other layouts than the formulas: their code is run alone
ARGUMENT = re.compile(r"(, )?\w+=\{(1-)?value\}")  # of a call, with the comma before it
CHECKED = normal(4, 6)  # input of checks
# Settings that code implies: of facts, and of formulas in a library.
FURTHER = {"adam-decay": {"decay_kind": "decoupled"}, "mindspore by_squares": {"initial": 1.0}}


def codes(fact: Fact, cell: Cell) -> dict[str, Any]:
    """Return values of a fact's option by the code that has them."""
    found = {}
    if fact.formula:
        found = {code: value for value in values(fact, example(fact))[:4] if (code := cell.expression(value))}
    if cell.default is not None and (code := plain(cell)):
        found.setdefault(code, actual(fact, cell.default))
    return found


def plain(cell: Cell) -> str:
    """Return the code that has the default, without the argument; "" if there is none."""
    if str(cell.default) in cell.others:
        return cell.others[str(cell.default)]
    code = ARGUMENT.sub("", cell.code)
    return "" if "{" in code else code  # of an argument that has no name, nor so a default


def actual(fact: Fact, value: Any) -> Any:
    """Return the value of an option that facts.toml may have as text."""
    known = values(fact, example(fact)) if fact.formula else ()
    return next((each for each in known if str(each) == str(value)), value)


def run(library: Library, fact: Fact, code: str) -> Any:
    """Return the output of code, in the form that the formula gives; None if it is that of a layer that is not run."""
    made = example(fact)
    inputs = [library.tensor(array) for array in made.inputs]
    weight = library.parameter(np.asarray(made.inputs[0], np.float64))
    named = {role: library.tensor(array) for role, array in made.params.items()}
    names = {**dict(zip(("x", "y", "z", "mask"), inputs)), **made.names, **library.names, **named, "params": [weight]}
    value = eval(code, names)
    if fact.formula in UPDATES:
        after = library.update(value, weight, list(made.inputs[1:]))
        return np.diff(np.stack([made.inputs[0], *after]), axis=0)
    if fact.formula == CLIP:
        return library.array(library.clip(value, weight, inputs[0]))
    return run_layer(library, fact, value, code) if library.is_layer(value) else library.array(value)


def run_layer(library: Library, fact: Fact, layer: Any, code: str) -> np.ndarray | None:
    made, own = example(fact), library.named(layer)
    given, inputs = dict(made.params), list(made.inputs)
    if fact.formula == STATISTICS:
        given |= dict(zip(("running_mean", "running_var"), inputs.pop()))
    for role, array in given.items():
        if role in own:
            library.assign(own[role], array)
    trains = made.training or fact.formula == STATISTICS or ".train()" in code
    result = library.call(layer, [library.tensor(array) for array in inputs], trains)
    if fact.formula == STATISTICS and result is not None:
        return np.stack([library.array(own[role]) for role in ("running_mean", "running_var")])
    while isinstance(result, tuple):
        result = result[0]
    return None if result is None else library.array(result)


def expected(fact: Fact, library: str, value: Any) -> Iterator[np.ndarray]:
    """Return outputs of a fact's formula with each other option as the example or as the library has it."""
    made = example(fact)
    defaults = {
        each.option: actual(each, each.cells[library].default)
        for each in facts.facts()
        if each.formula == fact.formula and library in each.cells and each.cells[library].default is not None
    }
    further = FURTHER.get(fact.name, {}) | FURTHER.get(f"{library} {fact.formula}", {})
    names = [name for name in defaults if not name.endswith(IN_FP32) and name != fact.option]
    for chosen in (each for count in range(len(names) + 1) for each in combinations(names, count)):
        settings = {**made.settings, **{name: defaults[name] for name in chosen}, **further}
        result = output(fact, made._replace(settings=settings), value)
        if result is not None:
            yield result


def same(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    return np.shape(a) == b.shape and np.allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(), equal_nan=True)


def judge(library: Library, fact: Fact, name: str, code: str, value: Any) -> bool | None:
    """Return whether code gives the numbers of the formula, or a check is true; None if there is nothing to compare."""
    if code == fact.cells[name].check:
        return bool(eval(code, {**library.names, **helpers(library), "x64": library.tensor(CHECKED)}))
    if not fact.formula:
        return None
    got = run(library, fact, code)
    if got is None or name in CHANNELS_LAST:
        return None
    tolerance = IN_FP32_UPDATES if name == "mindspore" and fact.formula in UPDATES else TOLERANCE
    return any(same(got, each, tolerance) for each in expected(fact, name, value))


def main(framework: str) -> None:
    library = MADE[framework]()
    for fact in facts.facts():
        for name in set(OF_JAX if framework == "jax" else (framework,)) & set(fact.cells):
            cell = fact.cells[name]
            for code, value in (codes(fact, cell) | ({cell.check: True} if cell.check else {})).items():
                error, is_equal = "", None
                try:
                    is_equal = judge(library, fact, name, code, value)
                except Exception as caught:
                    error = f"{type(caught).__name__}: {caught}"[:200]
                print(json.dumps([fact.name, name, code, error, is_equal]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
