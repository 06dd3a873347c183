"""Check a local copy of a data set and, on request, re-encode and pack it: runs then start at once and read faster.

Nothing is written to the data set itself. The work can be interrupted at any time, even by kill -9; the same command
goes on where it stopped, and the result is the same, byte for byte.
"""

import argparse
import os
import signal
import sys
from typing import Any, NoReturn

from zoo import program
from zoo.data.errors import UserError
from zoo.data.packs import manifest
from zoo.data.preparing import face_pack, pool, result, sources, work
from zoo.data.preparing import job as jobs
from zoo.data.preparing import plan as plans
from zoo.data.preparing.job import Job
from zoo.data.preparing.plan import Plan
from zoo.data.preparing.progress import Progress
from zoo.data.preparing.work import Task

EPILOG = """\
data sets
  k400        Kinetics-400: train.list and val.list (videos or folders of frames), or train/<class>/, or the official
              train.csv and val.csv
  ssv2        Something-Something V2: the official annotations and <id>.webm, or lists
  imagenet    ImageNet: train/<class>/ and val/<class>/, or lists
  cityscapes  leftImg8bit/ and gtFine/
  faces       train.rec, label.txt, or a folder per identity
  folder      your own clips or images, in the layout of k400 or imagenet

examples
  %(prog)s k400 /data/k400                             check all clips and write the manifest
  %(prog)s k400 /data/k400 --reencode --out /fast/k400 clips of 256 pixels that are fast to read
  %(prog)s imagenet /data/imagenet --resize 256        images of 256 pixels in packs

Exit codes: 0 done, 1 done, but some files are unreadable or missing (they are listed in unreadable.csv), 2 an error to
fix on your side, 130 and 143 stopped by Ctrl-C and SIGTERM; the same command goes on."""
SHORT_SIDE, CRF, GOP, QUALITY = 256, 20, 8, 90  # measured in docs/data.md
MIN_SHORT_SIDE, MAX_SHORT_SIDE = 16, 4096
MAX_CRF, MAX_GOP = 51, 1000
USED_BY = {  # option -> forms that it changes
    "short_side": ("reencode", "frames"),
    "crf": ("reencode",),
    "gop": ("reencode",),
    "quality": ("frames", "resize"),
}
MAX_LISTED = 5  # files in a message


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _prepare(arguments)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(
            f"{where}{error.strerror}; mend that and run the same command again: it goes on from here"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("kind", choices=sources.KINDS, metavar="|".join(sources.KINDS), help="the data set")
    add("root", metavar="ROOT", help="its folder")
    add("--out", metavar="DIR", help="a new folder for the result; default ROOT-prepared")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--pack", action="store_true", help="pack the files as they are; faces in insightface's format")
    forms.add_argument("--reencode", action="store_true", help="pack clips in H.264 with frequent keyframes")
    forms.add_argument("--frames", action="store_true", help="pack each frame of a clip as a JPEG file")
    forms.add_argument("--resize", type=int, metavar="SHORT", help="pack images with this shorter side as JPEG files")
    add("--short-side", type=int, metavar="N", help=f"of clips; default {SHORT_SIDE}, smaller ones are kept")
    add("--crf", type=int, metavar="N", help=f"quality of H.264, 0 (best) to {MAX_CRF}; default {CRF}")
    add("--gop", type=int, metavar="N", help=f"frames from one keyframe to the next; default {GOP}")
    add("--quality", type=int, metavar="N", help=f"of JPEG, 1 to 100; default {QUALITY}")
    add("--full", action="store_true", help="decode every frame of every clip; default: the first, middle and last")
    add("--train-list", metavar="FILE", help="list of the training split, as data.train_list")
    add("--val-list", metavar="FILE", help="list of the validation split, as data.val_list")
    add("--suffix", metavar="TEXT", help="appended to every path of the lists, as data.suffix")
    add("--names", metavar="FILE", help="class names, as data.names")
    add("--frame-template", metavar="TEXT", help="names of the images in folders of frames, as data.frame_template")
    add("--first-frame", type=int, metavar="N", help="number of the first of them, as data.first_frame")
    add("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes; default one per CPU")
    add(
        "--skip-unreadable",
        action="store_true",
        help="leave out files that vanish, change or cannot be opened meanwhile, instead of stopping there",
    )
    return parser


def _prepare(arguments: argparse.Namespace) -> int:
    job = _job(arguments)
    out = arguments.out or jobs.default_folder(job.root)
    if arguments.workers < 1:
        raise UserError(f"--workers {arguments.workers}: must be at least 1")
    if not os.path.isdir(job.root):
        raise UserError(f"{job.root}: no such folder; pass the folder of the data set")
    jobs.claim(out, job)
    if not manifest.is_prepared(out):
        with jobs.lock(out):
            _work(job, out, arguments.workers, arguments.skip_unreadable)
    result.remove_work(out)
    report = result.read_report(out)
    _print_report(out, report)
    sets = report.get("verification", ())
    return 1 if report["unreadable"] or report["missing"] or any(one["unreadable"] for one in sets) else 0


def _job(arguments: argparse.Namespace) -> Job:
    """Return the settings of the preparation. Raises UserError."""
    form = next((form for form in ("pack", "reencode", "frames") if getattr(arguments, form)), "files")
    form = "resize" if arguments.resize is not None else form
    for option, users in USED_BY.items():
        if getattr(arguments, option) is not None and form not in users:
            raise UserError(f"--{option.replace('_', '-')}: is for {' and '.join('--' + user for user in users)} only")
    values = {
        "short_side": SHORT_SIDE if arguments.short_side is None else arguments.short_side,
        "crf": CRF if arguments.crf is None else arguments.crf,
        "gop": GOP if arguments.gop is None else arguments.gop,
        "quality": QUALITY if arguments.quality is None else arguments.quality,
    }
    limits = {
        "short_side": (MIN_SHORT_SIDE, MAX_SHORT_SIDE),
        "crf": (0, MAX_CRF),
        "gop": (1, MAX_GOP),
        "quality": (1, 100),
    }
    if arguments.resize is not None:
        values["short_side"] = arguments.resize
    for option, (smallest, largest) in limits.items():
        if not smallest <= values[option] <= largest:
            name = "resize" if option == "short_side" and form == "resize" else option.replace("_", "-")
            raise UserError(f"--{name} {values[option]}: must be {smallest} to {largest}")
    given = ((name, getattr(arguments, name)) for name in sources.LIST_SETTINGS)
    lists = tuple((name, value) for name, value in given if value is not None)
    return Job(arguments.kind, os.path.abspath(arguments.root), form, full=arguments.full, lists=lists, **values)


def _work(job: Job, out: str, workers: int, skip_unreadable: bool) -> None:
    """Do what is left to do. Raises UserError where the user must act first."""
    plan = plans.load(out)
    if plan is None:
        found = sources.find(job.kind, job.root, dict(job.lists))
        _check_form(job, found.media)
        print(f"listing {len(found.samples):,} samples ...", flush=True)
        plan = plans.make(out, job, found)
    if not plan.chunks:
        raise UserError(f"{job.root}: none of the {len(plan.missing)} listed files exists; check the folder")
    joins = plan.media == "face" and job.form == "pack"
    if not (joins and face_pack.begun(out)):
        _run_chunks(_tasks(job, out, plan, joins, skip_unreadable), plan, workers)
    if joins:
        face_pack.join(out, plan)
        result.write(out, job, plan, (face_pack.NAME,))
        return
    packed = job.form != "files"
    result.write(out, job, plan, tuple(plans.shard_name(plan, chunk) for chunk in plan.chunks) if packed else ())


def _check_form(job: Job, media: str) -> None:
    if media not in jobs.FORMS[job.form]:
        names = {
            "video": "clips",
            "frames": "folders of frames",
            "image": "images",
            "pair": "images with masks",
            "face": "faces",
        }
        usable = [form for form, every in jobs.FORMS.items() if media in every and form != "files"]
        raise UserError(
            f"--{job.form}: {job.root} holds {names[media]}, for which there is "
            f"{' and '.join(f'--{form}' for form in usable)}"
        )
    if job.full and media != "video":
        raise UserError("--full: is for clips; images are always decoded completely")


def _tasks(job: Job, out: str, plan: Plan, joins: bool, skip_unreadable: bool) -> list[Task]:
    tasks, first = [], {chunk.split: 0 for chunk in plan.chunks}
    for chunk in plan.chunks:
        pack = face_pack.chunk_pack(out, chunk.number) if joins else os.path.join(out, plans.shard_name(plan, chunk))
        tasks.append(
            Task(
                out, job, plan.media, chunk, first[chunk.split], pack if job.form != "files" else None, skip_unreadable
            )
        )
        first[chunk.split] += chunk.items
    return tasks


def _run_chunks(tasks: list[Task], plan: Plan, workers: int) -> None:
    """Work on all chunks that are not complete. Raises UserError if files stop the work."""
    before = sum(map(work.done_before, tasks))
    total = sum(chunk.items for chunk in plan.chunks)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with Progress(total, before) as progress:
            stopped = pool.run(tasks, workers, progress.show)
    except (KeyboardInterrupt, SystemExit):
        print("stopped; the same command goes on from here", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if stopped:
        lines = "\n".join(f"  {name}: {reason}" for name, reason in stopped[:MAX_LISTED])
        more = f"\n  and {len(stopped) - MAX_LISTED} more" if len(stopped) > MAX_LISTED else ""
        raise UserError(
            f"{len(stopped)} files are not as they were listed:\n{lines}{more}\nrestore them and run the same command "
            "again, or leave such files out with --skip-unreadable; to use them as they are now, choose a new --out"
        )


def _terminate(*_: Any) -> NoReturn:
    sys.exit(143)


def _print_report(out: str, report: dict[str, Any]) -> None:
    size, frames = report["source_bytes"] / 1e9, report["frames"]
    out = out.encode(errors="backslashreplace").decode()  # a name that is no text cannot be printed
    for note in report["notes"]:
        print(note)
    for split, count in report["samples"].items():
        others = [f"{copy['name']} {copy[split]:,}" for copy in report["published_copies"] if split in copy]
        known = f" (published copies: {', '.join(others)})" if others else ""
        print(f"{split}: {count:,} readable samples{known}")
    print(f"{report['classes']:,} classes, {frames:,} images or frames, {size:,.2f} GB of source files")
    if report["repeated_contents"]:
        wrong = report["repeated_contents_with_another_label"]
        print(f"{report['repeated_contents']:,} files have the contents of another one, {wrong:,} with another label")
    if report["psnr"]:
        psnr = report["psnr"]
        print(f"PSNR: mean {psnr['mean']:.2f} dB, lowest {psnr['min']:.2f} dB, of {psnr['files']:,} files")
    for one in report.get("verification", ()):
        sizes = ", ".join(f"{count:,} of {size}" for size, count in one["images_by_size"].items())
        known = f" (published: {one['published_pairs']:,})" if one["published_pairs"] else ""
        same = f"{one['same']:,} of the same person"
        print(f"{one['name']}: {one['pairs']:,} pairs{known}, {same}; images: {sizes or 'none'}")
        if one["unreadable"]:
            print(f"{one['name']}: {one['unreadable']:,} unreadable, listed in {os.path.join(out, result.UNREADABLE)}")
    if report["unreadable"] or report["missing"]:
        path = os.path.join(out, result.UNREADABLE)
        print(f"left out: {report['unreadable']:,} unreadable and {report['missing']:,} missing, listed in {path}")
    print(f"done: {out}")
