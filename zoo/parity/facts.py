"""What differs between frameworks by default, and which of it explains a difference.

facts.toml has a row per fact: an option of a formula in zoo/parity/formulas/, its value in each framework when nobody
sets it, and the code that sets it. A fact explains a difference where the formula gives the numbers of the reference
with one value and those of the suspect with another. docs/differences.md has the same rows; tests run their code.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.formulas import images, normalization, optimizers, pointwise, sequences, windows
from zoo.parity.formulas.formula import Case, Change, Formula, changes

FRAMEWORKS = ("torch", "paddle", "mindspore", "flax", "equinox", "jax", "optax")  # and libraries
OF_JAX = ("flax", "equinox")  # whose users call functions of JAX, too
LAYERS = (
    *normalization.FORMULAS,
    *pointwise.FORMULAS,
    *windows.FORMULAS,
    *sequences.FORMULAS,
    *images.FORMULAS,
    optimizers.CLIP,
)
IN_FP32 = "@fp32"  # suffix of an option whose values differ by rounding to fp32 only
MANY = 1 << 16  # elements of an output that is computed by formulas of its kind alone
PRECISIONS = {"bf16": 8, "fp16": 11, "fp32": 24}  # bits of a number, the narrowest first


class Cell(NamedTuple):
    """A fact in one framework.

    Attributes:
        default: the value where none is given; None where one must be.
        code: an expression, in which {value} is the value; without that argument it has the default.
        literals: what stands for a value in it, where not the value itself.
        others: expressions for the values that the code cannot have.
        check: an expression that is true, where the default is no output of a layer.
    """

    default: Any = None
    code: str = ""
    literals: Mapping[str, str] = {}
    others: Mapping[str, str] = {}
    check: str = ""
    note: str = ""

    def expression(self, value: Any) -> str:
        """Return the code that has a value; "" if none has it."""
        key = str(value)
        if key in self.others:
            return self.others[key]
        if self.literals and key not in self.literals:
            return ""
        code = self.code.replace("{value}", self.literals.get(key, key))
        return code.replace("{1-value}", f"{1 - value:g}") if "{1-value}" in code else code


class Fact(NamedTuple):
    """An option in which frameworks or their ports differ.

    Attributes:
        what: of which something is said to be a value: "epsilon of LayerNorm".
        values: words for the values of the option; none for numbers.
        cells: by framework.
        when: values of other options with which both sides compute.
    """

    name: str
    subject: str
    what: str
    formula: str
    option: str
    values: Mapping[str, str]
    cells: Mapping[str, Cell]
    note: str = ""
    when: Mapping[str, Any] = {}

    def words(self, value: Any) -> str:
        """Return how a value is called."""
        if isinstance(value, float):
            short = float(f"{value:.3g}")
            is_rounded = self.option.endswith(IN_FP32) and value != short and value == np.float32(short)
            return f"{short:g} rounded to fp32" if is_rounded else f"{value:.6g}"
        return self.values.get(str(value), str(value))


class Guess(NamedTuple):
    """Why two numbers differ.

    Attributes:
        fact: its name, or names joined by commas; "" where no row has the option.
        cause: "epsilon of LayerNorm is 0.001 instead of 1e-05".
        remedy: code that makes the suspect equal to the reference; "" if unknown.
    """

    fact: str
    cause: str
    remedy: str = ""


@cache
def facts() -> tuple[Fact, ...]:
    """Return all facts, in the order of the page."""
    rows = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))["fact"]
    found = []
    for row in rows:
        cells = {name: Cell(**row.pop(name)) for name in FRAMEWORKS if name in row}
        found.append(Fact(**{"values": {}, "formula": "", "option": "", **row}, cells=cells))
    return tuple(found)


def explain(case: Case, framework: str = "") -> Guess | None:
    """Find the options of a layer that make the difference between two of its outputs.

    Args:
        case: its kind names classes, in any order; the more usual of several explanations is found by them.
        framework: of the suspect; its code is the remedy.

    Returns:
        None if no options of any formula give all numbers of both outputs.
    """
    if np.array_equal(case.reference, case.suspect, equal_nan=True):
        return None
    return explain_by(LAYERS, case, framework) or _of_precision(_wide(case.reference), _wide(case.suspect))


def explain_by(formulas: Sequence[Formula], case: Case, framework: str = "") -> Guess | None:
    """Return the guess with the fewest changes, by the formulas of its kind first."""
    case = case._replace(
        inputs=[_wide(x) for x in case.inputs],
        params={role: _wide(values) for role, values in case.params.items()},
        reference=_wide(case.reference),
        suspect=_wide(case.suspect),
    )
    likely = [formula for formula in formulas if re.search(formula.kinds, case.kind.lower())]
    others = [formula for formula in formulas if formula not in likely]
    if likely and case.reference.size > MANY:
        others = []
    best: list[Change] = []
    for formula in likely + others:
        found = changes(formula, case)
        if found and (not best or len(found) < len(best)):
            best = found
        if len(best) == 1:
            break
    if not best:
        return None
    said = [_said(change, framework) for change in best]
    names, causes, remedies = ([part for part in parts if part] for parts in zip(*said))
    return Guess(", ".join(names), " and ".join(causes), "; ".join(remedies))


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def fact_of(change: Change) -> Fact | None:
    """Return the fact of a change, None if no row has it."""
    a, b = change.reference, change.suspect
    option = change.option
    if isinstance(a, float) and isinstance(b, float) and np.float32(a) == np.float32(b):
        option += IN_FP32
    found = [
        fact
        for fact in facts()
        if (fact.formula, fact.option) == (change.formula, option)
        and (not fact.values or {str(a), str(b)} <= set(fact.values))
        and fact.when.items() <= change.settings.items()
    ]
    return max(found, key=lambda fact: len(fact.when), default=None)


def _said(change: Change, framework: str) -> tuple[str, str, str]:
    """Return the name of a change's fact, its cause and the remedy."""
    fact = fact_of(change)
    a, b = change.reference, change.suspect
    if fact is None:
        fact = Fact("", "", f"{change.option} of {change.formula}".replace("_", " "), "", "", {}, {})
    own, other = fact.words(b), fact.words(a)
    if own == other:  # numbers that differ in their last digits
        own, other = str(b), str(a)
    cause = f"{fact.what} is {own} instead of {other}"
    names = (framework, "jax") if framework in OF_JAX else (framework,)
    cells = [fact.cells[name] for name in names if name in fact.cells][:1] if framework else fact.cells.values()
    return fact.name, cause, ", ".join(code for cell in cells if (code := cell.expression(a)))


def _of_precision(reference: np.ndarray, suspect: np.ndarray) -> Guess | None:
    """Find that all numbers of the suspect alone are those of a narrower type."""
    if reference.shape != suspect.shape or not np.isfinite([reference, suspect]).all():
        return None
    difference = np.abs(reference - suspect).max(initial=0.0)
    for name, bits in PRECISIONS.items():
        is_narrow = [bool((_rounded(x, bits) == x).all()) for x in (suspect, reference)]
        if is_narrow == [True, False] and difference <= 2.0 ** (4 - bits) * np.abs(reference).max(initial=0.0):
            fact = next(fact for fact in facts() if fact.name == "precision")
            return Guess(fact.name, f"{fact.what} is that of {name}")
    return None


def _rounded(x: np.ndarray, bits: int) -> np.ndarray:
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)
