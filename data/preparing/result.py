"""The result of a preparation, made from the journals of all chunks: manifest, list of unreadable files, report."""

import csv
import io
import json
import math
import os
import shutil
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.data.packs import manifest
from zoo.data.packs.manifest import Info, Manifest
from zoo.data.preparing import job as jobs
from zoo.data.preparing import official, verification, work
from zoo.data.preparing import plan as plans
from zoo.data.preparing.job import Job
from zoo.data.preparing.journal import Entry, read_entries
from zoo.data.preparing.listing import Item, Missing
from zoo.data.preparing.plan import Chunk, Plan

REPORT, UNREADABLE, CLASSES, NOTES = "report.json", "unreadable.csv", "classes.txt", "source_notes"
NOTE_PREFIXES = ("license", "licence", "copying", "readme", "terms")  # files in the root that are kept, as lower case
MAX_NOTE_BYTES = 1 << 20
FOLDER_FORMS = {"files": "folders", "pack": "frames"}  # of the manifest, by the form of a job on folders of frames
TYPE_CODES = {"int64": "q", "int32": "i", "uint8": "B", "float32": "f"}  # of the module array


def write(out: str, job: Job, plan: Plan, shards: tuple[str, ...]) -> None:
    """Write all files of the result, the manifest last: with it, the preparation is complete.

    Args:
        shards: Names of the packs of all chunks, none if nothing is packed; or of one that joins them all.
    """
    columns, joined, start = _Columns(plan), len(shards) == 1 < len(plan.chunks), 0
    for chunk in plan.chunks:
        shard = (0 if joined else chunk.number) if shards else -1
        end = 0
        for item, entry in _read_chunk(out, chunk):
            columns.add(item, entry, shard, start)
            end = entry.get("end", 0)
        start += end if joined else 0
    content = columns.manifest(job, shards)
    checked = list(verification.check_all(job.root)) if plan.media == "face" else []
    report = {**_report(job, plan, columns, content), "verification": [one.summary for one in checked]}
    unreadable = columns.unreadable + [row for one in checked for row in one.unreadable]
    jobs.write_file(os.path.join(out, UNREADABLE), _unreadable_table(unreadable, plan.missing))
    if plan.classes:
        jobs.write_file(os.path.join(out, CLASSES), "".join(f"{name}\n" for name in plan.classes))
    _copy_notes(job.root, os.path.join(out, NOTES))
    jobs.write_file(os.path.join(out, REPORT), json.dumps(report, indent=1) + "\n")
    jobs.write_file(os.path.join(out, manifest.NAME), manifest.encode(content))


def read_report(out: str) -> dict[str, Any]:
    """Read the report of a complete preparation."""
    with open(os.path.join(out, REPORT), encoding="utf-8") as file:
        return json.load(file)


def remove_work(out: str) -> None:
    """Remove the working files of a complete preparation, if there are any."""
    shutil.rmtree(os.path.join(out, jobs.WORK), ignore_errors=True)


class _Columns:
    """The columns of the manifest while they grow: arrays, because a set of faces has millions of rows."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.values = {name: array(TYPE_CODES[dtype]) for name, (dtype, _) in manifest.COLUMNS.items()}
        self.paths: list[bytes] = []
        self.masks: list[bytes] = []
        self.record = array("q")
        self.codecs: dict[str, int] = {}
        self.splits: dict[str, tuple[int, int]] = {}
        self.unreadable: list[tuple[Missing, str]] = []
        self.pattern: tuple[str, int] = ("", 0)  # template and first number of the images of folders

    def add(self, item: Item, entry: Entry, shard: int, start: int) -> None:
        """Add a sample.

        Args:
            shard: Number of its pack, -1 without one.
            start: Byte of the pack at which its chunk begins.
        """
        sample = item.sample
        first, end = self.splits.setdefault(sample.split, (len(self.paths), len(self.paths)))
        if "bad" in entry:
            self.unreadable.append((Missing(sample.split, sample.name, sample.label), entry["bad"]))
            return
        offsets = entry.get("at", [])
        row = {
            "label": [entry.get("label", sample.label)],
            "bytes": [entry.get("bytes", item.size)],
            "sha256": bytes.fromhex(entry["sha256"]),
            "size": entry["size"],
            "codec": [self.codecs.setdefault(entry["codec"], len(self.codecs))],
            "frames": [entry.get("frames", 1)],
            "rate": entry.get("rate", (0, 1)),
            "psnr": [entry.get("psnr", math.nan)],
            "shard": [shard],
            "first_record": [len(self.record)],
            "records": [len(offsets)],
        }
        for name, values in row.items():
            self.values[name].extend(values)
        self.paths.append(os.fsencode(sample.name))
        if self.plan.media == "pair":
            self.masks.append(os.fsencode(sample.mask))
        self.record.extend(start + offset for offset in offsets)
        self.splits[sample.split] = (first, end + 1)
        self.pattern = sample.template, sample.first_frame

    def manifest(self, job: Job, shards: tuple[str, ...]) -> Manifest:
        columns = {
            name: np.array(self.values[name], dtype).reshape(len(self.paths), *shape)
            for name, (dtype, shape) in manifest.COLUMNS.items()
        }
        has_folders = self.plan.media == "frames"
        info = Info(
            job.kind,
            "video" if has_folders else self.plan.media,
            FOLDER_FORMS[job.form] if has_folders else job.form,
            job.root,
            self.plan.classes,
            self.splits,
            tuple(self.codecs),
            shards,
            official.TERMS[job.kind],
            *self.pattern,
        )
        return Manifest(info, columns, self.paths, self.masks, np.array(self.record, np.int64))


def _read_chunk(out: str, chunk: Chunk) -> Iterator[tuple[Item, Entry]]:
    entries = read_entries(work.journal_path(out, chunk.number))
    items = plans.read_items(out, chunk.number)
    if len(entries) != len(items):
        raise UserError(f"{work.journal_path(out, chunk.number)}: is damaged; prepare the data set into a new folder")
    yield from zip(items, entries)


def _report(job: Job, plan: Plan, columns: _Columns, content: Manifest) -> dict[str, Any]:
    psnr = content.columns["psnr"][~np.isnan(content.columns["psnr"])].astype(np.float64)
    repeated, contradictory = _count_repeated(content)
    splits = {name: end - first for name, (first, end) in columns.splits.items()}
    copies = official.copies(job.kind, len(plan.classes))
    return {
        "kind": job.kind,
        "root": job.root,
        "form": job.form,
        "samples": splits,
        "classes": len(plan.classes),
        "unreadable": len(columns.unreadable),
        "missing": len(plan.missing),
        "source_bytes": int(content.columns["bytes"].sum()),
        "frames": int(content.columns["frames"].sum(dtype=np.int64)),
        "codecs": {
            name: int(np.count_nonzero(content.columns["codec"] == number)) for name, number in columns.codecs.items()
        },
        "repeated_contents": repeated,
        "repeated_contents_with_another_label": contradictory,
        "psnr": {"files": len(psnr), "mean": round(psnr.mean(), 3), "min": round(psnr.min(), 3)} if len(psnr) else None,
        "published_copies": [{"name": copy.name, **copy.counts, "source": copy.source} for copy in copies],
        "notes": list(plan.notes),
        "terms": official.TERMS[job.kind],
    }


def _count_repeated(content: Manifest) -> tuple[int, int]:
    """Return how many samples have the contents of an earlier one, and how many of these another label."""
    hashes = content.columns["sha256"].view("V32").ravel()
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    earlier = first[group.ravel()]
    repeated = earlier != np.arange(len(hashes))
    labels = content.columns["label"]
    return int(repeated.sum()), int((repeated & (labels[earlier] != labels)).sum())


def _unreadable_table(unreadable: Sequence[tuple[Missing, str]], missing: Sequence[Missing]) -> str:
    """Return a table of the samples that are left out, with the reasons."""
    file = io.StringIO(newline="")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("split", "path", "label", "reason"))
    rows.writerows((*sample, reason) for sample, reason in unreadable)
    rows.writerows((*sample, "no such file") for sample in missing)
    return file.getvalue()


def _copy_notes(root: str, folder: str) -> None:
    """Copy the files about the license that lie in the root of the source."""
    names = [entry.name for entry in os.scandir(root) if entry.is_file() and entry.stat().st_size <= MAX_NOTE_BYTES]
    for name in sorted(name for name in names if name.lower().startswith(NOTE_PREFIXES)):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(root, name), "rb") as file:
            jobs.write_file(os.path.join(folder, name), file.read())
