"""Journals of speed runs that never took place, and the processes that would have written them."""

import json
from pathlib import Path

from tests.helpers import report_runs
from tests.helpers.journals import write_journal
from zoo.commands import train


def speed_events(samples_per_s, **begin):
    """Return the events of a speed run of four updates. begin: fields of its first event."""
    case = {"recipe": "tsm_demo", "model": "tsm", "protocol": "motion/8x1x1@32", "batch": 8, "count": 4, **begin}
    load, start, speed, end = report_runs.speed_events(samples_per_s, **case)
    return [load, start, report_runs.train_event(4, 109.0, host_memory_bytes=2_000_000), speed, end]


def write_speed_run(folder, samples_per_s, **fields):
    return write_journal(folder, speed_events(samples_per_s, **fields))


class FakeRuns:
    """Stands in for zoo.bench.matrix.process.run: writes the journal that train.py would write.

    Attributes:
        started: (recipe, framework, precision, batch, folder's name) of the runs so far.
        speed: function of (folder, request, ranks) that returns samples/s.
        failures: framework -> reason for which its runs fail.
        max_batch: largest batch that fits.
        stop_after: number of runs after which the program is interrupted; None for never.
    """

    def __init__(self):
        self.started, self.failures, self.commands = [], {}, []
        self.speed = lambda folder, request, ranks: 100.0 + len(request.config.framework) + ranks
        self.max_batch, self.stop_after = 10**9, None

    def __call__(self, words, log, checkout, seconds, memory=None):
        self.commands.append((list(words), checkout, memory))
        log.write_text("training\n")
        ranks, arguments = 1, words[2:]
        if words[1].endswith("launch.py"):
            hosts, per_host = map(int, words[2].split("x"))
            ranks, arguments = hosts * per_host, words[words.index("-c") :]
        request = train.read(train.parse(list(arguments)))
        config = request.config
        folder = config.out
        name = folder.rpartition("/")[2]
        self.started.append((request.recipe, config.framework, config.train.precision, config.train.batch, name))
        if self.stop_after is not None and len(self.started) > self.stop_after:
            self._write(folder, request, ranks, 3)
            raise KeyboardInterrupt
        if config.train.batch > self.max_batch:
            return "out of memory"
        if config.framework in self.failures:
            return self.failures[config.framework]
        self._write(folder, request, ranks, None)
        return None

    def _write(self, folder, request, ranks, count):
        config = request.config
        events = speed_events(
            self.speed(folder, request, ranks),
            recipe=request.recipe,
            framework=config.framework,
            precision=config.train.precision,
            batch=config.train.batch,
            cards=ranks,
        )
        write_journal(Path(folder), events[:count])


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))
