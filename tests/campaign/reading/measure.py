"""Read many samples, or start and stop reading often, and print what it left: a JSON object on the last line.

python -m tests.campaign.reading.measure '{"kind": ..., "count": ..., "root": ..., "workers": ..., "seed": ...}'

Runs with an empty folder for temporary files of its own (TMPDIR).
"""

import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.campaign.reading import traces
from zoo.data.demo import motion, shapes
from zoo.data.stream import EvaluationBatches, EvaluationReader, Stream, open_training

CLIPS, IMAGES, CYCLES = "clips", "images", "starts and stops"
BATCH = 16
SAMPLINGS = 100  # of the memory
WARM_UP = 0.2  # share of the samples before the memory counts


def main(text: str) -> None:
    plan = json.loads(text)
    exec(plan.get("fault", ""), {})
    work = start_and_stop if plan["kind"] == CYCLES else read_through
    failures, figures = work(**{name: value for name, value in plan.items() if name != "fault"})
    print(json.dumps({"failures": failures, "figures": figures}))


def read_through(kind: str, count: int, root: str, workers: int, seed: int) -> tuple[list[str], dict[str, float]]:
    """Read `count` samples; return what went wrong, and the growth of the memory in percent."""
    dataset = split(kind, root)
    temporary = Path(tempfile.gettempdir())
    _read(dataset, 2, workers, seed)  # imports, and what the first use of a library keeps
    before = traces.take(temporary)
    memory: list[tuple[int, int]] = []

    def look() -> None:
        memory.append(traces.memory())

    _read_all(open_training(dataset, seed, BATCH, 0, count // BATCH, num_workers=workers), count // BATCH, look)
    failures = traces.additions(before, lambda: traces.take(temporary))
    figures = {}
    for name, values in zip(("parent", "workers"), zip(*memory[int(WARM_UP * len(memory)) :])):
        if max(values):
            figures[f"growth of the {name} (%)"] = growth(values)
    return failures, figures


def _read_all(stream: Stream, batches: int, look: Callable[[], None]) -> None:
    """Read all batches, and call `look` now and then."""
    for number, _ in enumerate(stream):
        if number % max(1, batches // SAMPLINGS) == 0:
            look()
    stream.close()


def growth(values: tuple[int, ...]) -> float:
    """Return by how many percent the last quarter of the values exceeds the first one."""
    quarter = max(1, len(values) // 4)
    return (max(values[-quarter:]) / max(values[:quarter]) - 1) * 100


def start_and_stop(kind: str, count: int, root: str, workers: int, seed: int) -> tuple[list[str], dict[str, float]]:
    """Start and stop reading `count` times, after none, some or all batches; return what was left."""
    rng, temporary = random.Random(seed), Path(tempfile.gettempdir())
    sets = [split(name, root) for name in (CLIPS, IMAGES)]
    for dataset in sets:
        _read(dataset, 2, workers, seed)
    before, failures = traces.take(temporary), list[str]()
    for cycle in range(count):
        dataset, processes, taken = rng.choice(sets), rng.randint(0, workers), rng.randrange(4)
        rng.choice((_read, _evaluate))(dataset, taken, processes, seed)
        found = traces.additions(before, lambda: traces.take(temporary))
        failures = [f"start {cycle}, {processes} workers, {taken} batches: {line}" for line in found]
        if failures:
            break
    return failures, {}


def _read(dataset: Any, taken: int, workers: int, seed: int) -> None:
    """Take some batches of training, and stop."""
    stream = open_training(dataset, seed, BATCH, 0, 3, num_workers=workers)
    _take(stream, taken, stream.close)


def _evaluate(dataset: Any, taken: int, workers: int, seed: int) -> None:
    reader = EvaluationReader(EvaluationBatches(dataset, seed, BATCH // 4), workers)
    _take(reader.read(), taken, reader.close)


def _take(batches: Iterator[Any], taken: int, close: Callable[[], None]) -> None:
    for _ in range(taken):
        if next(batches, None) is None:
            break
    close()


def split(kind: str, root: str) -> Any:
    """Return the training split of a demo set, which is made when it is missing."""
    if kind == CLIPS:
        settings = motion.Settings(root=f"{root}/motion", train_clips=16, val_clips=8, size=64, segments=4, threads=1)
        return motion.load(settings)[0]
    return shapes.load(shapes.Settings(root=f"{root}/shapes", train_images=48, val_images=8, size=48, threads=1))[0]


if __name__ == "__main__":
    main(sys.argv[1])
