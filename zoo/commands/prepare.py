"""Check a local copy of a data set and, on request, re-encode and pack it: runs then start at once and read faster.

Nothing is written to the data set itself. The work can be interrupted at any time, even by kill -9; the same command
goes on where it stopped, and the result is the same, byte for byte. Started several times at once, on machines that
share the folder of the result, it divides the work.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from zoo import program
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data import addresses, sources
from zoo.data.errors import UserError
from zoo.data.packs import manifest
from zoo.data.preparing import job as jobs
from zoo.data.preparing import listing, result, work
from zoo.data.preparing.job import Job, Plan
from zoo.data.preparing.work import Task
from zoo.program import count

EPILOG = """\
data sets
  k400        Kinetics-400: train.list and val.list (videos or folders of frames), or train/<class>/, or the official
              train.csv and val.csv
  ssv2        Something-Something V2: the official annotations and <id>.webm, or lists
  imagenet    ImageNet: train/<class>/ and val/<class>/, or lists
  cityscapes  leftImg8bit/ and gtFine/
  faces       train.rec, label.txt, or a folder per identity
  folder      your own clips or images, in the layout of k400 or imagenet; --val-fraction 0.2 where there is no val

examples
  %(prog)s k400 /data/k400                             check all clips and write the manifest
  %(prog)s k400 /data/k400 --reencode --out /fast/k400 clips of 256 pixels that are fast to read
  %(prog)s imagenet /data/imagenet --resize 256        images of 256 pixels in packs

Exit codes: 0 done, 1 done, but some files are unreadable or missing (they are listed in unreadable.csv), 2 an error to
fix on your side; after this or an interrupt, the same command goes on."""
# Option -> default, smallest and largest value, the forms that it changes, and its help; measured in docs/data.md.
NUMBERS = {
    "short_side": (256, 16, 4096, ("reencode", "frames"), "shorter side of clips; smaller ones are kept"),
    "crf": (20, 0, 51, ("reencode",), "quality of H.264, 0 is the best"),
    "gop": (8, 1, 1000, ("reencode",), "frames from one keyframe to the next"),
    "quality": (90, 1, 100, ("frames", "resize"), "of JPEG"),
}
LINE_INTERVAL = 60  # seconds between lines where there is no terminal
WAIT = 1.0  # seconds between two looks at the chunks of other programs


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code."""
    arguments = parser().parse_args(argv)
    job = _job(arguments)
    require_new(arguments.json, "--json")
    out = arguments.out or f"{job.root}-prepared"
    if not arguments.out and (addresses.is_address(out) or set("*{") & set(out)):
        raise UserError(f"--out: name a folder for the result; beside {job.root} there is none")
    sources.check_root(job.root)
    if not sources.is_folder(job.root):
        raise UserError(f"{job.root}: no such folder; pass the folder of the data set")
    if arguments.dry_run:
        found = _find(job)
        print(f"{len(found.samples):,} samples of {len(found.classes):,} classes would be prepared to {out}")
        return 0
    jobs.claim(out, job)
    try:
        if not manifest.is_prepared(out):
            _work(job, out, arguments.workers)
    except OSError as error:
        if manifest.is_prepared(out):  # another program has completed it, and removed its work
            return _finish(out, arguments.json)
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(
            f"{where}{error.strerror}; mend that and run the same command again: it goes on from here"
        ) from None
    return _finish(out, arguments.json)


def _finish(out: str, file: str | None) -> int:
    result.remove_work(out)
    report = result.read_report(out)
    print_report(list(_report_lines(out, report)), report, file)
    sets = report["verification"]
    return 1 if report["unreadable"] or report["missing"] or any(one["unreadable"] for one in sets) else 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("kind", choices=listing.KINDS, metavar="|".join(listing.KINDS), help="the data set")
    add("root", metavar="ROOT", help="its folder")
    add("--out", metavar="DIR", help="a new folder for the result; default ROOT-prepared")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--pack", action="store_true", help="pack the files as they are; faces in insightface's format")
    forms.add_argument("--reencode", action="store_true", help="pack clips in H.264 with frequent keyframes")
    forms.add_argument("--frames", action="store_true", help="pack each frame of a clip as a JPEG file")
    forms.add_argument("--raw", action="store_true", help="pack the pixels of scenes and masks, not compressed")
    forms.add_argument("--resize", type=int, metavar="SHORT", help="pack images with this shorter side as JPEG files")
    for name, (default, smallest, largest, _, text) in NUMBERS.items():
        described = f"{text}, {smallest} to {largest}; default {default}"
        add(f"--{name.replace('_', '-')}", type=int, metavar="N", help=described)
    add("--full", action="store_true", help="decode every frame of every clip; default: the first, middle and last")
    for name, kind in listing.LIST_SETTINGS.items():
        add(f"--{name.replace('_', '-')}", type=kind, metavar="VALUE", help=f"as data.{name} of a recipe")
    add("--workers", type=count, default=os.cpu_count() or 1, metavar="N", help="processes; default one per CPU")
    add("--dry-run", action="store_true", help="list the samples, and write nothing")
    add_json_argument(parser)
    return parser


def _job(arguments: argparse.Namespace) -> Job:
    form = next((form for form in ("pack", "reencode", "frames", "raw") if getattr(arguments, form)), "files")
    form = "resize" if arguments.resize is not None else form
    values = {}
    for name, (default, smallest, largest, users, _) in NUMBERS.items():
        given, option = getattr(arguments, name), name.replace("_", "-")
        if given is not None and form not in users:
            raise UserError(f"--{option}: is for {' and '.join('--' + user for user in users)} only")
        if name == "short_side" and form == "resize":
            given, option = arguments.resize, "resize"
        values[name] = default if given is None else given
        if not smallest <= values[name] <= largest:
            raise UserError(f"--{option} {values[name]}: must be {smallest} to {largest}")
    given_lists = ((name, getattr(arguments, name)) for name in listing.LIST_SETTINGS)
    lists = tuple((name, value) for name, value in given_lists if value is not None)
    for name, value in lists:
        addresses.check(str(value), f"--{name.replace('_', '-')}")
    return Job(arguments.kind, sources.absolute(arguments.root), form, full=arguments.full, lists=lists, **values)


def _find(job: Job) -> listing.Listing:
    found = listing.find(job.kind, job.root, dict(job.lists))
    if found.media not in jobs.FORMS[job.form]:
        usable = [f"--{form}" for form, every in jobs.FORMS.items() if found.media in every and form != "files"]
        raise UserError(
            f"--{job.form}: {job.root} holds {manifest.MEDIA[found.media]}, for which there is {' and '.join(usable)}"
        )
    if job.full and found.media != "video":
        raise UserError("--full: is for clips; images are always decoded completely")
    return found


def _work(job: Job, out: str, workers: int) -> None:
    """Prepare a data set together with all programs that have the same job and folder."""
    with jobs.lock(out):
        if manifest.is_prepared(out):
            return
        plan = jobs.load_plan(out) or _plan(job, out)
    if not plan.chunks:
        raise UserError(f"{job.root}: none of the {len(plan.missing)} listed files exists; check the folder")
    is_waiting = False
    while left := [task for task in _tasks(job, out, plan) if not work.is_done(task)]:
        if free := list(filter(work.is_free, left)):
            _run(free, plan, sum(task.chunk.items for task in left), workers)
            continue
        if not is_waiting:
            print("waiting for other programs, which have the last chunks ...", flush=True)
        is_waiting = True
        time.sleep(WAIT)
    with jobs.lock(out):
        if not manifest.is_prepared(out):
            result.write(out, job, plan)


def _plan(job: Job, out: str) -> Plan:
    try:
        found = _find(job)
    except UserError:  # the same folder is free for other options
        result.remove_work(out)
        with suppress(FileNotFoundError):
            os.remove(os.path.join(out, jobs.MARK))
        raise
    print(f"listing {len(found.samples):,} samples ...", flush=True)
    return jobs.make_plan(out, job, found)


def _tasks(job: Job, out: str, plan: Plan) -> list[Task]:
    joins = plan.media == "face" and job.form == "pack"
    tasks = []
    for chunk in plan.chunks:
        pack = result.chunk_pack(out, chunk.number) if joins else os.path.join(out, plan.shard_name(chunk))
        tasks.append(Task(out, job, plan.media, plan.pattern, chunk, pack if job.form != "files" else None))
    return tasks


def _run(tasks: list[Task], plan: Plan, left: int, workers: int) -> None:
    """Work on chunks, with a bar on a terminal and a line per minute elsewhere. left: samples that are not done."""
    total = sum(chunk.items for chunk in plan.chunks)
    before = total - left
    console = Console(highlight=False, soft_wrap=True)
    columns = (TextColumn("checking"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
    started = printed = time.monotonic()
    if before:
        print(f"going on after {before:,} of {total:,} samples", flush=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("checking", total=total, completed=before)

        def show(done: int) -> None:
            nonlocal printed
            progress.update(bar, completed=before + done)
            now = time.monotonic()
            if not console.is_terminal and now - printed > LINE_INTERVAL:
                printed, rate = now, done / (now - started)
                print(f"checking: {before + done:,} of {total:,}, {rate:,.1f}/s", flush=True)

        work.run(tasks, workers, show)


def _report_lines(out: str, report: dict[str, Any]) -> Iterator[str]:
    out = out.encode(errors="backslashreplace").decode()  # a name that is no text cannot be printed
    path = os.path.join(out, result.UNREADABLE)
    for split, number in report["samples"].items():
        yield f"{split}: {number:,} readable samples"
    size, frames = report["source_bytes"] / 1e9, report["frames"]
    yield f"{report['classes']:,} classes, {frames:,} images or frames, {size:,.2f} GB of source files"
    if report["repeated_contents"]:
        wrong = report["repeated_contents_with_another_label"]
        yield f"{report['repeated_contents']:,} files have the contents of another one, {wrong:,} with another label"
    for one in report["verification"]:
        bad = f"; {one['unreadable']:,} unreadable, listed in {path}" if one["unreadable"] else ""
        yield f"{one['name']}: {one['pairs']:,} pairs, {one['same']:,} of the same person{bad}"
    if report["unreadable"] or report["missing"]:
        yield f"left out: {report['unreadable']:,} unreadable and {report['missing']:,} missing, listed in {path}"
    yield f"done: {out}"
