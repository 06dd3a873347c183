"""Proof that any two programs compute the same, or the modules where they part; `zoo parity` is its program.

    from zoo import parity
    parity.assert_same({"torch": "mine.py:build", "paddle": "mine_paddle.py:build"}, {"x": "float32:4,3,64,64"})

The sides run in processes of their own: this one imports no framework.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zoo.parity.engine import request_of, run
from zoo.parity.side import Side
from zoo.parity.verdict import Finding, Judged, Result

__all__ = ["Finding", "Judged", "Result", "Side", "assert_same", "compare"]
Source = str | Callable[..., Any]


def compare(
    sides: Mapping[str, Source],
    inputs: Mapping[str, Any],
    *,
    loss: Source | Mapping[str, Source] | None = None,
    optimizer: Source | Mapping[str, Source] | None = None,
    updates: int = 3,
    accept: Sequence[str] = (),
    mapping: Mapping[str, Any] | None = None,
    python: Mapping[str, str] | None = None,
    channels_last: Sequence[str] = (),
    seed: int = 0,
    folder: str | None = None,
) -> Result:
    """Compare the computations of two or more models of any framework from equal weights.

    Args:
        sides: what makes each model, by title `FRAMEWORK[@LABEL][:DEVICE][:PRECISION][:compile]`; the first one is the
            reference, whose weights all get. FILE.py:FUNCTION, MODULE:FUNCTION(ARGUMENTS), a function that a file
            defines, or an .onnx file.
        inputs: by name: an array, `DTYPE:SHAPE[:LOW:HIGH]`, a file .npy or .npz, or a function of a numpy generator.
            They are keywords of the model where it has all of their names, else positional.
        loss: cross_entropy, mse or binary_cross_entropy of the first output with the input `label`; or a function of
            (outputs, inputs) per side. None: a random weight for every element of the outputs.
        optimizer: of the zoo, such as "sgd(lr=0.1, momentum=0.9)"; or, per side, a function that returns one or several
            of the framework's own, given the list of parameters, or the model if its parameter is called `model` (in
            JAX, given nothing). None: gradients alone are compared.
        updates: with an optimizer.
        accept: modules of the reference, or facts, whose differences are known; what lies behind them is judged all
            the same.
        mapping: names or file by which tensors of a side are found in the reference, by its title.
        python: interpreter of a side, by title; the default is this one.
        channels_last: titles of the sides that take 4-D and 5-D inputs with channels last.
        folder: for the records; a temporary one by default.

    Raises:
        UserError: a side cannot be built or run, or tensors do not find each other.
    """
    request = request_of(
        sides, inputs, loss, optimizer, updates, accept, mapping or {}, python or {}, channels_last, seed
    )
    return run(request, folder)


def assert_same(sides: Mapping[str, Source], inputs: Mapping[str, Any], **options: Any) -> None:
    """Compare as `compare` does, for a test.

    Raises:
        AssertionError: they differ; with the report.
    """
    result = compare(sides, inputs, **options)
    if not result.agrees:
        raise AssertionError(str(result))
