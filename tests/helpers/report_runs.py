"""Journals of constructed runs for reports, whose values follow from their arguments."""

from tests.helpers.journals import full_begin, full_load, write_journal

EPOCH = 1000  # training samples


def speed_events(
    rate, cards=1, nodes=1, batch=128, framework="torch", precision="fp32", count=100, step_ms=None, **begin
):
    """Return the events of a speed run of `rate` samples/s; step_ms: times of its updates."""
    compute = {"fp32": "fp32", "amp": "fp16"}[precision]
    level = None if precision == "fp32" else "O1"
    start = full_begin(
        framework=framework,
        precision=precision,
        compute=compute,
        level=level,
        cards=cards,
        nodes=nodes,
        batch=batch,
        **{"model": "resnet", "recipe": "resnet50_imagenet", "protocol": "imagenet/224-of-256", **begin},
    )
    samples = count * start["global_batch"]
    every = step_ms or [1000 * start["global_batch"] / rate] * count
    return [
        full_load(),
        start,
        {
            "event": "speed",
            "time": 200.0,
            "drop": 20,
            "count": count,
            "samples": samples,
            "seconds": samples / rate,
            "samples_per_s": rate,
            "step_ms": {"p50": 0.0, "p90": 0.0, "p99": 0.0, "all": every},
            "data_wait_fraction": 0.25,
            "flops_per_s": None,
        },
        {"event": "end", "time": 201.0, "step": 120, "epoch": 1.0},
    ]


def train_event(step, time, speed=100.0, batch=10, **values):
    """Return a `train` event of a run whose updates have `batch` samples."""
    return {
        "event": "train",
        "time": time,
        "step": step,
        "epoch": step * batch / EPOCH,
        "lr": 0.1,
        "loss": 2.0,
        "grad_norm": 1.0,
        "scale": 1.0,
        "skipped": 0,
        "consecutive_skips": 0,
        "samples_per_s": speed,
        "data_wait_fraction": 0.0,
        "step_ms": {"p50": 100.0, "p90": 110.0, "p99": 150.0, "count": step},
        "data_wait_ms": {"p50": 1.0, "p90": 1.0, "p99": 1.0},
        "host_memory_bytes": 3 << 30,
        "device_memory_bytes": 2 << 30,
        "power": None,
        **values,
    }


def eval_event(epoch, time, accuracy, batch=10):
    """Return an evaluation at the end of an epoch."""
    return {"event": "eval", "time": time, "step": epoch * EPOCH // batch, "epoch": epoch, "accuracy": accuracy,
            "top1": accuracy, "samples": 100, "seconds": 1.0}  # fmt: skip


def training_events(accuracies=(0.5, 0.72, 0.7), seconds=20.0, **begin):
    """Return the events of a run of one epoch for each accuracy, `seconds` each; the clock starts at 100."""
    batch = begin.pop("batch", 10)
    start = full_begin(batch=batch, **begin)
    steps = EPOCH // start["global_batch"]
    events = [full_load(), start]
    for epoch, accuracy in enumerate(accuracies, 1):
        now = 100.0 + seconds * epoch
        for part in (1, 2):
            step = (epoch - 1) * steps + part * steps // 2
            events.append(train_event(step, now - (3 - part), batch=start["global_batch"]))
        events.append(eval_event(epoch, now, accuracy, start["global_batch"]))
    events.append({"event": "end", "time": now + 0.5, "step": epoch * steps, "epoch": float(epoch)})
    return events


def write(folder, events):
    """Write a journal and return its folder as text."""
    return write_journal(folder, events)
