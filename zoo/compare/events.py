"""The tensors of a proof in the order of the computation, matched between records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zoo.compare.record import Call, Record

Records = Mapping[str, Record]  # by title
AFTER = "after the updates"  # end of the titles of passes that follow the updates
OBJECTIVE_FIRST = 1 << 30  # position of parameters that no module of the model has


class Event(NamedTuple):
    """A tensor of the proof.

    Attributes:
        keys: of the tensor in each record that has it, by the record's title.
        stage: the pass or update.
        name: of the module or parameter.
        part: input, output, loss, gradient, grad_norm, statistic, objective (a running statistic of the loss), change,
            optimizer, ema or prediction.
        calls: of the module, by the record's title.
    """

    keys: dict[str, str]
    stage: str
    name: str
    part: str
    calls: dict[str, Call]


def events(records: Records) -> list[Event]:
    """List the tensors that at least two records have."""
    first = next(iter(records.values()))
    order: list[Event] = []
    for title in first.passes:
        if not title.endswith(AFTER):
            order += _pass_events(records, title)
    for step in first.steps:
        order += _update_events(records, step["title"], first)
    order += _plain_events(records, ["prediction"], "prediction", "prediction")
    for title in first.passes:
        if title.endswith(AFTER):
            order += _pass_events(records, title)
    return [event for event in order if len(event.keys) > 1]


def backward_order(record: Record, names: Iterable[str]) -> list[str]:
    """Sort parameters by the order in which the backward pass reaches their modules; those of the loss come first."""
    reached = {call.name: call.span[1] for call in record.passes["training"]}
    return sorted(names, key=lambda name: -reached.get(name.rpartition(".")[0], OBJECTIVE_FIRST))


def _pass_events(records: Records, title: str) -> Iterator[Event]:
    """Yield inputs and outputs of the modules of a forward pass, as they are computed."""
    by_name = {
        record: {(call.name, call.occurrence): call for call in records[record].passes.get(title, [])}
        for record in records
    }
    first = next(iter(records.values()))
    ticks: list[tuple[int, Call, str]] = []
    for call in first.passes[title]:
        ticks += [(call.span[0], call, "in"), (call.span[1], call, "out")]
    for _, call, kind in sorted(ticks, key=lambda tick: tick[0]):
        identity = call.name, call.occurrence
        calls = {record: same[identity] for record, same in by_name.items() if identity in same}
        for i in range(min(other.inputs if kind == "in" else other.outputs for other in calls.values())):
            keys = {record: f"{other.key}/{kind}{i}" for record, other in calls.items()}
            yield Event(keys, title, call.name, "input" if kind == "in" else "output", calls)


def _update_events(records: Records, step: str, first: Record) -> list[Event]:
    def named(part: str) -> list[str]:
        start = f"{step}/{part}/"
        return [key.removeprefix(start) for key in first.shapes if key.startswith(start) and "#" not in key]

    order = backward_order(first, named("gradient"))
    found = _plain_events(records, [f"{step}/loss"], step, "loss")
    found += _plain_events(records, [f"{step}/gradient/{name}" for name in order], step, "gradient")
    found += _plain_events(records, [f"{step}/grad_norm"], step, "grad_norm")
    for part, names in (
        ("statistic", named("statistic")),
        ("objective", named("objective")),
        ("change", order),
        ("optimizer", named("optimizer")),
        ("ema", named("ema")),
    ):
        found += _plain_events(records, [f"{step}/{part}/{name}" for name in names], step, part)
    return found


def _plain_events(records: Records, keys: Sequence[str], stage: str, part: str) -> list[Event]:
    return [
        Event(
            {title: key for title, record in records.items() if key in record.shapes},
            stage,
            key.removeprefix(f"{stage}/{part}/").removeprefix(f"{stage}/"),
            part,
            {},
        )
        for key in keys
    ]
