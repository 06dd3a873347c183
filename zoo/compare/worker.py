"""Results of one framework: its processes, its proofs, and the steps of the recipe as it stands."""

import json
import os
import re
import subprocess
import textwrap
import time
import traceback
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from zoo.compare import proof, ranks
from zoo.compare.findings import Finding
from zoo.compare.report import Row
from zoo.config.schema import Config
from zoo.data.errors import UserError
from zoo.data.stream import LoadedBatch, open_training
from zoo.distributed.rendezvous import free_port
from zoo.parity import record
from zoo.parity.recording import is_own_code, relative
from zoo.run.job import Job, assemble, join
from zoo.run.pipeline import SPARE, Prefetcher
from zoo.run.request import Request
from zoo.run.resume import restore
from zoo.run.stopping import BadSampleTracker
from zoo.trainer.plan import Mode
from zoo.trainer.world import UnsupportedPrecision

POLL_INTERVAL = 0.1  # seconds
GRACE = 20.0  # seconds that the other ranks have to end by themselves after one has failed
LOCALHOST = "127.0.0.1"
MAX_LOG_LINES = 15  # of a framework that failed
RUN = "-run"  # suffix of the folder with the checkpoint of a framework
RANKS = "-ranks"  # suffix of what two processes write
REFUSAL = ".refusal"  # suffix of the message of a framework that has no such precision
CRASH = ".crash"  # suffix of what was raised in a framework, and where
TRAINING = "training"  # what is no part of the proof
MAX_MESSAGE = 300  # characters of it
QUOTED_FRAME = re.compile(r'([^\s"(]+\.py)(?:\(|:|", line )(\d+)')  # in a message of a framework's C++, innermost first
PASSES = os.path.dirname(os.path.abspath(__file__)) + os.sep  # in front of their frames lies what is compared


def run_rank(request: Request, environment: Mapping[str, str], steps: int, stem: str, with_proof: bool = True) -> None:
    """Write the proof and a row per step, and end the process. All ranks call this, rank 0 writes.

    Args:
        steps: updates of the recipe as it stands.
        stem: path of the results without their suffixes.
        with_proof: whether to run the proof.
    """
    try:
        job = assemble(request, join(request, environment))
        restore(request.config, job, None, print)
        if with_proof:
            write_proofs(job, request.config, stem)
        with crash_noted(stem, TRAINING):
            train(job, request.config.seed, steps, stem + ".jsonl")
    except UnsupportedPrecision as error:
        Path(stem + REFUSAL).write_text(str(error), encoding="utf-8")
        raise
    job.world.close()
    job.group.close()
    job.world.exit_process(0)


def refusal(stem: str) -> str:
    """Return why a framework has no such precision; "" if it has not said so."""
    path = Path(stem + REFUSAL)
    return path.read_text(encoding="utf-8") if path.exists() else ""


@contextmanager
def crash_noted(stem: str, title: str) -> Generator[None, None, None]:
    """Note what a computation raises, but for what the user can fix; of several ranks, what the first one raises."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {textwrap.shorten(str(error), MAX_MESSAGE)}"
        with suppress(FileExistsError), open(stem + CRASH, "x", encoding="utf-8") as file:
            json.dump([title, what, crash_sites(error)], file)
        raise


def crash_sites(error: Exception) -> list[str]:
    """Return file and line of the calls from the proof to an error, the innermost first: one for each source file."""
    quoted = [(file, int(line)) for file, line in QUOTED_FRAME.findall(str(error))]
    raised = [(frame.filename, frame.lineno or 0) for frame in reversed(traceback.extract_tb(error.__traceback__))]
    lines: dict[str, int] = {}
    for frames in (quoted, raised):
        for file, line in takewhile(lambda frame: not frame[0].startswith(PASSES), frames):
            if is_own_code(file):
                lines.setdefault(relative(file), line)
    return [f"{file}:{line}" for file, line in lines.items()]


def crashes(folder: str, has_results: bool) -> dict[str, Finding]:
    """Return what was raised, by framework; with two processes by `<framework>-ranks`.

    Where no framework has results, the error may be that of the recipe, unless the same batches were computed in
    another precision. What stops a framework that has recorded a proof is behind what that did not reach.

    Args:
        has_results: whether a framework has.
    """
    found = {}
    for path in sorted(Path(folder).glob(f"*{CRASH}")):
        title, what, places = json.loads(path.read_text(encoding="utf-8"))
        log, framework = str(path.with_suffix(".log")), path.stem.removesuffix(RANKS)
        recorded = sorted(Path(folder).glob(f"{framework}-*.safetensors"))
        if not has_results and (title == TRAINING or not recorded):
            continue
        for proof_path in recorded[:1]:
            places += record.load(str(proof_path)).files["precision" if framework == path.stem else "ranks"]
        what = f"{title} stops with {what}; the traceback is in {log}"
        found[path.stem] = Finding((framework,), what, tuple(places) or (log,), "")
    return found


def run_one_of_two(request: Request, environment: Mapping[str, str], stem: str, other: str | None) -> None:
    """Write the proof with two processes, and end this one of them; other: stem of a framework to go on from."""
    job = assemble(request, join(request, environment))
    restore(request.config, job, None, print)
    state = job.trainer.state_dict()
    weights = {param.name: state[param.name] for param in job.trainer.params}
    compute = "fp64" if has_fp64(job) else "fp32"
    batches = proof.batches(job, request.config.seed)
    runs = stem + RUN, other and other + RUN
    with crash_noted(stem + RANKS, f"the proof with {ranks.COUNT} processes"):
        result = ranks.record(job, request.config, compute, weights, batches, *runs)
    if job.group.rank == 0:
        result.save(f"{stem}{RANKS}.safetensors")
    job.world.close()
    job.group.close()
    job.world.exit_process(0)


def write_proofs(job: Job, config: Config, stem: str) -> None:
    """Record the proof in fp64, if the framework has it on this device, in fp32, and in the recipe's 16 bits."""
    weights = job.trainer.state_dict()
    weights = {param.name: weights[param.name] for param in job.trainer.params}
    batches = proof.batches(job, config.seed)
    precisions = [("fp64", "fp64")] if has_fp64(job) else []
    precisions += [("fp32", "rounded"), *([(job.plan.mode.compute, "mixed")] if job.plan.mode.is_mixed else [])]
    # That of the run comes last: JAX's numbers have 64 bits or not by what the last trainer had.
    precisions.sort(key=lambda each: each[0] == job.plan.mode.compute)
    for compute, suffix in precisions:
        with crash_noted(stem, f"the proof in {compute}"):
            result = proof.record(job, config, compute, weights, batches)
        if job.group.rank == 0:
            result.save(f"{stem}-{suffix}.safetensors")


def has_fp64(job: Job) -> bool:
    """Return whether the framework computes in fp64 on this device."""
    try:
        job.world.resolve_mode(Mode("fp64"))
    except UserError as error:
        print(f"no proof in fp64: {error}")
        return False
    return True


def train(job: Job, seed: int, steps: int, path: str) -> None:
    """Train as the recipe says; rank 0 writes a row per step, with the checksum of its own batch."""
    trainer, accumulate = job.trainer, job.plan.accumulate
    count = steps * accumulate
    group = job.group
    stream = open_training(
        job.train_set, seed, job.batch_plan.batch, 0, count, group.rank, group.size, job.dropout_masks
    )
    checksums: list[int] = []
    bad_samples = BadSampleTracker(job.train_set, print)
    with (
        open(path if group.rank == 0 else os.devnull, "w", encoding="utf-8") as file,
        closing(Prefetcher(_with_checksums(stream, checksums), trainer.to_device, accumulate + SPARE)) as prefetcher,
    ):
        header = {"framework": job.framework, "device": job.world.device, **job.plan.mode._asdict()}
        file.write(json.dumps({**header, "global_batch": job.clock.global_batch}) + "\n")
        for step in range(steps):
            micro_batches, lr = prefetcher.take(accumulate), job.lr(step)
            bad_samples.add(prefetcher.pop_unreadable())
            start = time.perf_counter()
            numbers = trainer.read(trainer.step(micro_batches, lr, step))
            seconds = time.perf_counter() - start
            batch = zlib.crc32(repr(checksums[step * accumulate : (step + 1) * accumulate]).encode())
            loss = sum(group.all_gather(numbers["loss"]))
            row = Row(step + 1, lr, loss, numbers["grad_norm"], numbers["skipped"], seconds, batch)
            file.write(json.dumps(row._asdict()) + "\n")
            file.flush()


def _with_checksums(stream: Iterator[LoadedBatch], checksums: list[int]) -> Generator[LoadedBatch, None, None]:
    for batch, unreadable in stream:
        checksums.append(zlib.crc32(b"".join(batch[name].tobytes() for name in sorted(batch))))
        yield batch, unreadable


def run_ranks(command: Sequence[str], count: int, log: str) -> tuple[int, str]:
    """Run a command as ranks 0 to count - 1, whose output goes to one file.

    Args:
        count: number of ranks; a single process gets no environment of ranks.

    Returns:
        The first exit code that is not 0, and the end of the output; 0 and "" if all went well.
    """
    port = free_port(LOCALHOST)
    with open(log, "w", encoding="utf-8") as file:
        processes = [
            subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_rank_variables(rank, count, port)},
            )
            for rank in range(count)
        ]
        code = _wait_for_ranks(processes)
    if not code:
        return 0, ""
    with open(log, encoding="utf-8", errors="replace") as file:
        return code, "".join(file.readlines()[-MAX_LOG_LINES:]).strip()


def _wait_for_ranks(processes: Sequence[subprocess.Popen]) -> int:
    """Wait for all ranks, and end the others soon after one has failed; return the first exit code that is not 0."""
    while None in (codes := [process.poll() for process in processes]) and not any(codes):
        time.sleep(POLL_INTERVAL)
    failed = next((code for code in codes if code), 0)
    for process in processes:
        try:
            process.wait(GRACE if failed else None)
        except subprocess.TimeoutExpired:
            process.kill()
    return failed


def _rank_variables(rank: int, size: int, port: int) -> dict[str, str]:
    """Return the environment variables of a rank, those of torchrun; none for a single process."""
    if size == 1:
        return {}
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    return {"MASTER_ADDR": LOCALHOST, **{name: str(number) for name, number in numbers.items()}}
