"""The result of a preparation, from the entries of all chunks: manifest, pack of faces, unreadable files, report."""

import io
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from zoo.data import durable, host, sources
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import csv_files, recordio
from zoo.data.formats.face_packs import read_bin
from zoo.data.packs import manifest
from zoo.data.packs.manifest import Info, Manifest
from zoo.data.preparing import encoding, work
from zoo.data.preparing import job as jobs
from zoo.data.preparing.job import Job, Plan
from zoo.data.preparing.listing import Sample

REPORT, UNREADABLE, CLASSES = "report.json", "unreadable.csv", "classes.txt"
FACE_PACK, PROPERTY = "train.rec", "property"
FOLDER_FORMS = {"files": "folders", "pack": "frames"}  # of the manifest, by the form of a job on folders of frames
TERMS = {
    "k400": "Annotations: CC BY 4.0, Google LLC. The videos belong to those who uploaded them to YouTube.",
    "ssv2": "Research license of Qualcomm, which must be accepted before the download; no redistribution.",
    "imagenet": "Terms of access of image-net.org: non-commercial research and education only; no redistribution.",
    "cityscapes": "License of cityscapes-dataset.com: non-commercial purposes only; no redistribution.",
    "faces": "Packs of insightface: non-commercial research only. For other sets, see their own terms.",
    "folder": "Not known: see the source of the files.",
}


def write(out: str, job: Job, plan: Plan) -> None:
    """Write all files of the result, the manifest last: with it, the preparation is complete."""
    content, unreadable = _collect(out, job, plan)
    if content.info.shards == (FACE_PACK,):
        _join_faces(out, plan, content)
    sets, bad_images = _check_verification(job.root) if plan.media == "face" else ([], [])
    report = {**_report(job, plan, content), "unreadable": len(unreadable), "verification": sets}
    table = io.StringIO(newline="")
    reasons = [*unreadable, *((sample, "no such file") for sample in plan.missing), *bad_images]
    rows = [(sample.split, sample.name, sample.label, reason) for sample, reason in reasons]
    csv_files.write(table, [("split", "path", "label", "reason"), *rows])
    jobs.write_file(os.path.join(out, UNREADABLE), table.getvalue())
    if plan.classes:
        jobs.write_file(os.path.join(out, CLASSES), "".join(f"{name}\n" for name in plan.classes))
    jobs.write_file(os.path.join(out, REPORT), json.dumps(report, indent=1) + "\n")
    jobs.write_file(os.path.join(out, manifest.NAME), manifest.encode(content))


def read_report(out: str) -> dict[str, Any]:
    with open(os.path.join(out, REPORT), encoding="utf-8") as file:
        return json.load(file)


def remove_work(out: str) -> None:
    shutil.rmtree(os.path.join(out, jobs.WORK), ignore_errors=True)


def chunk_pack(out: str, number: int) -> str:
    """Return the path of the complete pack of a chunk of faces."""
    return jobs.work_path(out, number, "complete.rec")


def _collect(out: str, job: Job, plan: Plan) -> tuple[Manifest, list[tuple[Sample, str]]]:
    """Make the manifest of all chunks, one after the other: a set of faces has millions of samples."""
    joins = plan.media == "face" and job.form == "pack"
    shards = (FACE_PACK,) if joins else tuple(map(plan.shard_name, plan.chunks)) if job.form != "files" else ()
    parts, record, start = list[dict[str, np.ndarray]](), [np.zeros(0, np.int64)], 0
    paths, masks, unreadable = list[bytes](), list[bytes](), list[tuple[Sample, str]]()
    codecs: dict[str, int] = {}
    splits: dict[str, tuple[int, int]] = {}
    for chunk in plan.chunks:
        samples, entries = jobs.read_samples(out, chunk.number), work.read_entries(out, chunk.number)
        if len(samples) != len(entries):
            raise UserError(f"{out}: chunk {chunk.number} is damaged; prepare the data set into a new folder")
        unreadable += [(sample, entry["bad"]) for sample, entry in zip(samples, entries) if "bad" in entry]
        samples = [sample for sample, entry in zip(samples, entries) if "bad" not in entry]
        entries = [entry for entry in entries if "bad" not in entry]
        shard = (0 if joins else chunk.number) if shards else -1
        parts.append(_columns(entries, codecs, shard, sum(map(len, record))))
        record.append(np.array([start + offset for entry in entries for offset in entry["at"]], np.int64))
        start += os.path.getsize(chunk_pack(out, chunk.number)) if joins else 0
        first, end = splits.get(chunk.split, (len(paths), len(paths)))
        splits[chunk.split] = first, end + len(samples)
        paths += [os.fsencode(sample.name) for sample in samples]
        masks += [os.fsencode(sample.mask) for sample in samples if plan.media == "pair"]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in manifest.COLUMNS}
    has_folders = plan.media == "frames"
    media, form = ("video", FOLDER_FORMS[job.form]) if has_folders else (plan.media, job.form)
    terms = TERMS[job.kind]
    pattern, held_out = plan.pattern, plan.held_out
    info = Info(job.kind, media, form, job.root, plan.classes, splits, tuple(codecs), shards, terms, *pattern, held_out)
    return Manifest(info, columns, paths, masks, np.concatenate(record)), unreadable


def _columns(entries: Sequence[work.Entry], codecs: dict[str, int], shard: int, first: int) -> dict[str, np.ndarray]:
    """Return the columns of a chunk. shard: number of its pack; first: number of its first record."""
    counts = np.array([len(entry["at"]) for entry in entries], np.int64)
    values: dict[str, Any] = {
        "label": [entry["label"] for entry in entries],
        "bytes": [entry["bytes"] for entry in entries],
        "sha256": np.frombuffer(bytes.fromhex("".join(entry["sha256"] for entry in entries)), np.uint8),
        "size": [entry["size"] for entry in entries],
        "codec": [codecs.setdefault(entry["codec"], len(codecs)) for entry in entries],
        "frames": [entry.get("frames", 1) for entry in entries],
        "rate": [entry.get("rate", (0, 1)) for entry in entries],
        "shard": [shard] * len(entries),
        "first_record": first + np.cumsum(counts) - counts,
        "records": counts,
    }
    return {
        name: np.array(values[name], dtype).reshape(len(entries), *shape)
        for name, (dtype, shape) in manifest.COLUMNS.items()
    }


def _join_faces(out: str, plan: Plan, content: Manifest) -> None:
    """Join the packs of all chunks into insightface's train.rec, train.idx and property."""
    offsets, labels = content.record.tolist(), content.columns["label"]
    part = os.path.join(out, jobs.WORK, f"{FACE_PACK}.part")
    with open(part, "wb", opener=durable.fresh) as target:
        for chunk in plan.chunks:
            with open(chunk_pack(out, chunk.number), "rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
        first, further = _identity_records(labels, len(plan.classes))
        keys = [*range(first, first + len(offsets)), *further]
        for record in further.values():
            offsets.append(target.tell())
            target.write(record)
        target.flush()
        os.fsync(target.fileno())
    jobs.write_file(os.path.join(out, f"{os.path.splitext(FACE_PACK)[0]}.idx"), recordio.index_lines(keys, offsets))
    if len(labels):
        width, height = content.columns["size"][0].tolist()
        identities = max(len(plan.classes), 1 + int(labels.max()))
        jobs.write_file(os.path.join(out, PROPERTY), f"{identities},{height},{width}\n")
    os.rename(part, os.path.join(out, FACE_PACK))
    durable.sync_folder(out)


def _identity_records(labels: np.ndarray, identities: int) -> tuple[int, dict[int, bytes]]:
    """Return the key of the first image, and by key the records without an image, in the order of the file.

    The images of an identity have consecutive keys, which its record states; record 0 states the keys after the last
    image and after the last identity. Where the images are not in the order of their labels there are no such recordio.
    """
    if np.any(np.diff(labels) < 0):
        return 0, {}
    counts = np.bincount(labels, minlength=identities).tolist()
    further, key, end = {}, 1, 1 + len(labels)
    for label, count in enumerate(counts):
        further[end + label] = recordio.record(recordio.labels_payload(key, key + count))
        key += count
    further[0] = recordio.record(recordio.labels_payload(end, end + len(counts)))
    return 1, further


def _report(job: Job, plan: Plan, content: Manifest) -> dict[str, Any]:
    columns = content.columns
    hashes = columns["sha256"].view("V32").ravel()
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    earlier = first[group.ravel()]  # sample with the same contents
    repeated, labels = earlier != np.arange(len(hashes)), columns["label"]
    codecs = np.bincount(columns["codec"], minlength=len(content.info.codecs)).tolist()
    return {
        "kind": job.kind,
        "root": job.root,
        "form": job.form,
        "samples": {name: end - first for name, (first, end) in content.info.splits.items()},
        "classes": len(plan.classes),
        "missing": len(plan.missing),
        "source_bytes": int(columns["bytes"].sum()),
        "frames": int(columns["frames"].sum(dtype=np.int64)),
        "codecs": dict(zip(content.info.codecs, codecs)),
        "repeated_contents": int(repeated.sum()),
        "repeated_contents_with_another_label": int((repeated & (labels[earlier] != labels)).sum()),
        "terms": TERMS[job.kind],
    }


def _check_verification(root: str) -> tuple[list[dict[str, Any]], list[tuple[Sample, str]]]:
    """Decode the images of the verification sets beside a training set: a summary of each, and what is unreadable."""
    summaries, unreadable = [], list[tuple[Sample, str]]()
    for name in sorted(name for name in sources.listdir(root) if name.endswith(".bin")):
        path, images, same = os.path.join(root, name), list[bytes](), list[bool]()
        try:
            images, same, _ = read_bin(path)
            bad = list(_unreadable_images(name, images))
        except UserError as error:
            bad = [(Sample("verification", name, -1), str(error).removeprefix(f"{path}: "))]
        summaries.append({"name": name, "pairs": len(same), "same": sum(same), "unreadable": len(bad)})
        unreadable += bad
    return summaries, unreadable


def _unreadable_images(name: str, images: Sequence[bytes]) -> Iterator[tuple[Sample, str]]:
    def problem(content: bytes) -> str:
        try:
            encoding.image_properties(content)
        except BadSample as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(host.cores())) as pool:
        for index, reason in enumerate(pool.map(problem, images)):
            if reason:
                yield Sample("verification", f"{name} image {index} of pair {index // 2}", -1), reason
