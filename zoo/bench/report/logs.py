"""Runs from AI-Rank logs of other projects, whose case is read from their names."""

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from zoo.bench.airank_log import Log, measure, parse
from zoo.bench.report.runs import COMPLETE, INCOMPLETE, Case, Point, Run, Values

LOG = "AI-Rank log"  # how the throughput was counted: by the definition of AI-Rank, or declared in the log
WORDS: Mapping[str, Mapping[str, str]] = {  # field of a case -> pattern in the path -> value
    "framework": {
        r"pytorch|torch": "torch",
        r"paddle": "paddle",
        r"mindspore": "mindspore",
        r"jax|flax": "jax",
        r"mxnet": "mxnet",
    },
    "model": {
        r"tsm": "tsm",
        r"deeplab": "deeplabv3plus",
        r"resnet|rn50": "resnet",
        r"arcface": "arcface",
        r"hrnet": "hrnet",
        r"bert": "bert",
    },
    "precision": {r"amp": "amp", r"fp16": "fp16", r"fp32": "fp32"},
}
CARDS = re.compile(r"gpux(\d{1,5})|(\d{1,5})gpu", re.IGNORECASE)
BATCH = re.compile(r"[-_](?:bs|bz|b)(\d{1,6})(?=[-_.])", re.IGNORECASE)


def read(path: str, target: float | None, samples: int | None) -> Run:
    """Read a log; the words of its name and its folders are model, framework, cards and precision.

    The throughput is computed from the training samples of an epoch; without them, it is the declared one.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        log = parse(file)
    values = measure(log, None if target is None else Decimal(str(target)), samples)
    scale = 100 if log.percent else 1
    begin = log.first("test_begin")
    state, remark = _state(log)
    points = [
        Point(
            float(epochs) * samples if samples and (epochs := log.epochs(event)) is not None else None,
            float(event.time - begin.time) if begin else None,
            float(event.value) / scale,
        )
        for event in log.evals
        if event.value is not None
    ]
    ips = values["samples_per_s"] or values["avg_ips"] or None
    return Run(
        path=path,
        state=state,
        remark=remark,
        case=_case(path),
        values=Values(
            samples_per_s=ips,
            avg_ips=ips,
            best=None if values["best"] is None else values["best"] / scale,
            time_to_target=values["time_to_target" if target is not None else "target_quality_time"],
            target_epoch=values["target_epoch"],
            total_time=values["total_time"],
            evaluations=len(points),
        ),
        target=target,
        checksum=values["checksum"],
        metrics=points,
    )


def _state(log: Log) -> tuple[str, str]:
    if log.kind != "training":
        return INCOMPLETE, f"a log without the events of training ({log.kind})"
    if log.first("test_finish"):
        return COMPLETE, ""
    return (COMPLETE, "ends at the target") if log.first("target_quality_time") else (INCOMPLETE, "no test_finish")


def _case(path: str) -> Case:
    file = Path(path)
    name = "/".join([*file.parts[-5:-1], file.name])
    cards, batch = CARDS.search(file.name), BATCH.search(file.name)
    return Case(
        model=_word(name, "model"),
        framework=_word(name, "framework"),
        precision=_word(name, "precision"),
        batch=int(batch[1]) or None if batch else None,
        cards=int(cards[1] or cards[2]) or None if cards else None,
        counting=LOG,
    )


def _word(path: str, key: str) -> str | None:
    """Return the value of the first pattern that is found: in the name of the file, or else in its folders."""
    for part in reversed(path.split("/")):
        for pattern, value in WORDS[key].items():
            if re.search(pattern, part, re.IGNORECASE):
                return value
    return None
