"""What a borrowed machine with one NVIDIA GPU can show in ten minutes: python -m tests.gpu.day --out FOLDER.

Steps in the order of their worth, each a process of its own with a time limit. No failure stops the rest. After every
step FOLDER/day.tar.gz is written anew: the output of each step, the journals of runs, and summary.md. Python, PyTorch
and numpy must be there; the other packages that are imported may come as wheels.
"""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.helpers.paths import ROOT

DEMOS = {"resnet50_demo": ("image", 8), "tsm_demo": ("clip", 8), "deeplabv3plus_demo": ("scene", 19),
         "arcface_demo": ("face", 24)}  # fmt: skip
STEPS = 8  # updates of a run
REPORTS = {  # recipe -> batches of the reports in AMP and in fp32
    "tests/gpu/recipes/resnet50.yaml": (256, 128),
    "tests/gpu/recipes/tsm.yaml": (16, 16),
    "tests/gpu/recipes/deeplabv3plus.yaml": (4, 2),
    "configs/reports/arcface_plsc_dlperf.yaml": (128, 128),
}
NCCL = """
import torch, torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
numbers = torch.arange(2.0**20)
sums, gathered = numbers.cuda(), torch.zeros(2**20, device="cuda")
dist.all_reduce(sums)
dist.all_gather_into_tensor(gathered, sums)
assert torch.equal(gathered.cpu(), numbers)
dist.destroy_process_group()
print("NCCL", torch.cuda.nccl.version(), "adds up and gathers")
"""
KEPT = (".txt", ".jsonl", ".yaml", ".log", ".md")  # of the files that steps write
RESERVE = 0.03  # share of the time that the end of a step and the last archive may take
PATIENCE = 5.0  # seconds that a process has to end by itself
MIB = 2**20


class Step(NamedTuple):
    """A process: name, time limit in seconds, and command line."""

    name: str
    limit: float
    words: list[str]


class Day:
    """The steps of a day. Those of a group run at the same time.

    Args:
        groups: all steps.
        out: folder for the archive.
        work: folder of what the steps write.
        seconds: that the whole may take.
        variables: environment variables of the steps.
    """

    def __init__(self, groups: list[list[Step]], out: Path, work: Path, seconds: float, variables: dict[str, str]):
        self._groups, self._out, self._work, self._variables = groups, out, work, variables
        self._end = time.monotonic() + (1 - RESERVE) * seconds
        self._rows = {step.name: ("skipped", 0.0, "") for group in groups for step in group}

    def run(self) -> bool:
        """Run the steps; return whether all of them passed."""
        for folder in (self._out, self._work / "steps"):
            folder.mkdir(parents=True, exist_ok=True)
        for group in self._groups:
            self._run_together(group)
        return all(state == "passed" for state, _, _ in self._rows.values())

    def _run_together(self, group: list[Step]) -> None:
        begin = time.monotonic()
        running = [(step, self._start(step, len(group))) for step in group if begin < self._end]
        try:
            while running:
                time.sleep(0.05)
                for step, process in [*running]:
                    if process.poll() is not None or time.monotonic() > min(begin + step.limit, self._end):
                        running.remove((step, process))
                        self._finish(step, process, begin)
        finally:  # Ctrl-C
            for step, process in running:
                self._finish(step, process, begin)

    def _start(self, step: Step, share: int) -> subprocess.Popen[bytes]:
        threads = str(max(1, (os.cpu_count() or 1) // share))
        variables = {**os.environ, "OMP_NUM_THREADS": threads, "TERM": "dumb", **self._variables}
        with open(self._output(step), "wb") as output:
            return subprocess.Popen(
                step.words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=variables,
                start_new_session=True,
            )  # fmt: skip

    def _finish(self, step: Step, process: subprocess.Popen[bytes], begin: float) -> None:
        """End a step that still runs, note what became of it, and write the archive."""
        code = process.poll()
        if code is None:
            stop(process)
        state = "stopped" if code is None else f"exit code {code}" if code else "passed"
        lines = self._output(step).read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
        self._rows[step.name] = state, time.monotonic() - begin, last
        print(f"{step.name}: {state}: {last}", flush=True)
        self._write_archive()

    def _output(self, step: Step) -> Path:
        return self._work / "steps" / f"{step.name.replace(' ', '-')}.txt"

    def _write_archive(self) -> None:
        """Replace the archive. Other steps may be writing, so files grow and vanish."""
        rows = [f"| {name} | {state} | {seconds:.0f} | {last.replace('|', '/')} |"
                for name, (state, seconds, last) in self._rows.items()]  # fmt: skip
        table = "\n".join(["| step | result | seconds | last line |", "|---|---|---|---|", *rows, ""])
        (self._work / "summary.md").write_text(table)
        temporary = self._out / "day.tar.gz.part"
        with tarfile.open(temporary, "w:gz") as archive:
            for path in sorted(path for path in self._work.rglob("*") if path.suffix in KEPT and path.is_file()):
                with suppress(FileNotFoundError):
                    content = path.read_bytes()
                    entry = tarfile.TarInfo(str(path.relative_to(self._work)))
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
        os.replace(temporary, self._out / "day.tar.gz")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0 if every step passed, 1 if not, 130 after Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path("runs/day"), help="default runs/day")
    parser.add_argument("--minutes", type=float, default=10, help="that the whole may take; default 10")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="of packages that are missing here")
    parser.add_argument("--memory", type=Path, metavar="RUN", help="compare a run's memory with the estimate, and end")
    arguments = parser.parse_args(argv)
    if arguments.memory:
        print(memory(arguments.memory))
        return 0
    out, install = arguments.out.absolute(), []
    if (out / "day.tar.gz").exists():
        parser.error(f"--out: {out}/day.tar.gz exists already and is not overwritten; choose another folder")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="day-") as folder, suppress(KeyboardInterrupt):
        site, work = Path(folder, "site"), Path(folder, "results")
        if arguments.wheels:
            wheels = [str(path.absolute()) for path in arguments.wheels.glob("*.whl")]
            if not wheels:
                parser.error(f"--wheels: {arguments.wheels} holds no wheels; docs/performance.md says how to get them")
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
            install = [[Step("wheels", 60, [*words, "--target", str(site), *wheels])]]
        path = os.pathsep.join(filter(None, [str(site), str(ROOT), os.environ.get("PYTHONPATH")]))
        day = Day([*install, *plan(work)], out, work, 60 * arguments.minutes, {"PYTHONPATH": path})
        return 0 if day.run() else 1
    return 130


def plan(work: Path) -> list[list[Step]]:
    """Return the steps of a day by group. work: folder of what they write."""
    zoo = [sys.executable, "-m", "zoo"]
    query = "nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm --format=csv"
    machine = [
        Step("gpu", 30, ["sh", "-c", f"nvidia-smi; {query}"]),
        Step("doctor", 150, [*zoo, "doctor", "--framework", "torch", "--device", "cuda"]),
    ]
    on_cpu, on_gpu, speed, peak = [], [], [], []
    for demo in DEMOS:
        words = [*zoo, "compare", *settings(demo), "--frameworks", "torch", "--steps", str(STEPS)]
        cpu, gpu = str(work / f"parity/{demo}/cpu"), str(work / f"parity/{demo}/gpu")
        on_cpu.append(Step(f"{demo} on the CPU", 150, [*words, "--device", "cpu", "--out", cpu]))
        on_gpu.append(Step(f"parity {demo}", 90, [*words, "--device", "cuda", "--out", gpu, "--against", cpu]))
    for number, precision in enumerate(("amp", "fp32")):
        for recipe, batches in REPORTS.items():
            name = f"{Path(recipe).stem} {precision}"
            run = str(work / "speed" / name.replace(" ", "-"))
            changes = [f"train.precision={precision}", f"train.batch={batches[number]}", "data.workers=0"]
            words = [*zoo, "train", "-c", recipe, *options(changes), "--framework", "torch", "--device", "cuda"]
            speed.append(Step(f"speed {name}", 75, [*words, "--speed", "--count", "60", "--out", run]))
            peak.append(Step(f"memory {name}", 60, [sys.executable, "-m", "tests.gpu.day", "--memory", run]))
    return [
        [*machine, *on_cpu],
        on_gpu,
        *([step] for step in speed),
        [*tests(work, "two_processes", 120), Step("nccl", 60, [sys.executable, "-c", NCCL])],
        [test(work, name, 120) for name in ("goes_on", "less_memory", "dali")] + tests(work, "deterministic", 120),
        tests(work, "compiled", 240),
        tests(work, "trains", 120),
        peak,
    ]


def tests(work: Path, name: str, limit: float) -> list[Step]:
    """Return the steps of tests that have each demo as a parameter."""
    return [test(work, f"{name} and {demo}", limit) for demo in DEMOS]


def test(work: Path, name: str, limit: float) -> Step:
    """Return the step of the tests in test_gpu.py that have some words in their names."""
    pytest = [sys.executable, "-m", "pytest", "tests/gpu/test_gpu.py", "-p", "no:cacheprovider", "-rs", "-k", name]
    folder = work / f"test-{name.replace(' ', '-')}"
    # tests/conftest.py imports what these tests do without.
    return Step(f"test {name}", limit, [*pytest, "--confcutdir", "tests/gpu", "--basetemp", str(folder)])


def settings(demo: str, **changes: object) -> list[str]:
    """Return the options of a demo's recipe on random pixels."""
    kind, classes = DEMOS[demo]
    keys = {"data.name": "synthetic", "data.kind": kind, "data.num_classes": classes, "target": "null",
            "train.batch": 4, "train.eval_batch": 10, "data.train_samples": 4096, "data.val_samples": 10,
            "data.workers": 0, "train.log_every": 1, **changes}  # fmt: skip
    return ["-c", demo, *options(f"{key}={value}" for key, value in keys.items())]


def options(changes: Iterable[str]) -> list[str]:
    return [word for change in changes for word in ("-o", change)]


def memory(run: Path) -> str:
    """Return the memory that was estimated for a run, and that it took."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    measured = max(event.get("device_memory_bytes") or 0 for event in events) / MIB
    words = [sys.executable, "-m", "zoo", "bench", "estimate", "-c", str(run / "config.yaml"), "--json", "-"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    entries = json.loads(done.stdout)["memory"]
    estimated = sum(entry["size"] for entry in entries if entry["name"] != "program") / MIB
    return f"{measured:,.0f} MiB, {measured / estimated:.2f} of the estimated {estimated:,.0f} MiB"


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal_number)
        with suppress(subprocess.TimeoutExpired):  # it waits for the driver
            process.wait(PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
