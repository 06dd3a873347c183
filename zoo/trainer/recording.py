"""Record of a trainer's forward pass, module by module, for comparisons between frameworks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.record import Call
from zoo.parity.recording import Keep, Recorder


class ForwardRecord(NamedTuple):
    """A recorded forward pass: its calls, and the output of the model itself."""

    calls: list[Call]
    outputs: tuple[np.ndarray, ...]


def record(
    trainer: Any,
    modules: Mapping[str, Any],
    register: Callable[[Any, Callable, Callable], Sequence[Any]],
    forward: Callable[[], Any],
    array: Callable[[Any], np.ndarray],
    title: str,
    keep: Keep,
) -> ForwardRecord:
    """Run a model and record every module; its running statistics are unchanged afterwards.

    Args:
        register: registers hooks `enter(module, *inputs)` and `leave(module, inputs, outputs)` of a module.
        array: returns a tensor as a float64 array.
    """
    recorder, hooks = Recorder(modules, title, keep), list[Any]()
    for name, module in modules.items():

        def enter(module, *inputs, name=name):
            recorder.enter(name, module, list(map(array, flatten(inputs))))

        def leave(module, inputs, outputs):
            recorder.leave(list(map(array, flatten(outputs))))

        hooks += register(module, enter, leave)
    before = trainer.state_dict()
    try:
        forward()
    finally:
        for hook in hooks:
            hook.remove()
    trainer.load_state_dict({param.name: before[param.name] for param in trainer.params if param.is_statistic})
    return ForwardRecord(recorder.calls, recorder.outputs)


def flatten(values: Any) -> Iterator[Any]:
    """Yield the tensors of nested tuples, lists and dictionaries; everything else is left out."""
    if hasattr(values, "shape"):
        yield values
    elif isinstance(values, Mapping):
        yield from flatten(list(values.values()))
    elif isinstance(values, tuple | list):
        for value in values:
            yield from flatten(value)
