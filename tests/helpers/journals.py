"""Journals of runs that never took place."""

import json

BEGIN = {"event": "begin", "time": 100.0}


def write_journal(folder, events):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(folder)


def evaluations(*accuracies):
    """Return an evaluation after every 10 updates, a minute apart."""
    return [
        {"event": "eval", "time": 160.0 + 60 * i, "step": 10 * (i + 1), "epoch": i + 1, "accuracy": accuracy}
        for i, accuracy in enumerate(accuracies)
    ]


def end(step):
    return {"event": "end", "time": 999.0, "step": step, "epoch": step / 10}


def full_load(**changes):
    """Return the `load` event of a run, 5 s before its clock starts."""
    return {
        "event": "load",
        "time": 99.5,
        "at": 95.0,
        "checksum": "37724b19b6e5d41f9f147936d60b3c29",
        "train_samples": 1000,
        **changes,
    }


def full_begin(**changes):
    """Return a `begin` event with every field, by default of TSM on Kinetics-400 with one card.

    changes: fields to replace; `cards` and `nodes` change hosts, ranks and all that follows from them.
    """
    nodes, cards = changes.pop("nodes", 1), changes.pop("cards", 1)
    batch, accumulate = changes.get("batch", 4), changes.get("accumulate", 1)
    total = batch * accumulate * cards
    per_node = cards // nodes
    hosts = [host(f"n{i + 1}", range(i * per_node, (i + 1) * per_node)) for i in range(nodes)]
    return {
        "event": "begin",
        "time": 100.0,
        "framework": "torch",
        "framework_version": "2.13.0",
        "device": "cuda:0 (Tesla V100-SXM2-16GB)",
        "compute": "fp16",
        "level": "O1",
        "channels_last": False,
        "compile": False,
        "rounds_gradients": False,
        "ranks": cards,
        "accumulate": accumulate,
        "batch": batch,
        "launcher": "torchrun",
        "global_batch": total,
        "steps": 750,
        "lr": 0.0,
        "plan": f"{cards} rank(s) x {accumulate} micro-batch(es) x {batch} samples = global batch {total}",
        "weights": "resnet50-0676ba61.pth",
        "classes": 400,
        "outputs": 400,
        "parameters": 24327632,
        "train_samples": 1000,
        "val_samples": 100,
        "checksum": "37724b19b6e5d41f9f147936d60b3c29",
        "loader": "reference",
        "recipe": "tsm_k400",
        "recipe_sha256": "ab" * 32,
        "model": "tsm",
        "arch": {"name": "tsm", "depth": 50, "shift_div": 8, "dropout": 0.5},
        "task": "classify",
        "metric": "top1",
        "data": "kinetics",
        "protocol": "k400/8x1x1@224",
        "precision": "amp",
        "loss_scale": {"initial": 65536.0, "dynamic": True},
        "optimizer": {
            "name": "sgd",
            "momentum": 0.9,
            "weight_decay": 1e-4,
            "clip_norm": 20.0,
            "lr": 0.02,
            "base_batch": 128,
            "peak_lr": 0.02 * total / 128,
            "schedule": "step",
            "milestones": [2, 3],
            "milestone_unit": "epochs",
            "gamma": 0.1,
            "power": 0.9,
            "min_lr": 0.0,
            "warmup": "0 steps",
            "warmup_steps": 0,
        },
        "epochs": 3.0,
        "seed": 1,
        "target": 0.711,
        "warmup_epochs": 0,
        "eval_batch": 16,
        "eval_every": "1 epoch",
        "workers": 4,
        "threads": 2,
        "flops_per_sample": 65.8e9,
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "command": ["train.py", "-c", "configs/tsm_k400.yaml", "--amp"],
        "speed": None,
        "hosts": hosts,
        **changes,
    }


def host(name, ranks):
    """Return one of a run's hosts, with a V100 for every rank."""
    return {
        "name": name,
        "ranks": list(ranks),
        "os": "CentOS Linux release 7.5.1804",
        "kernel": "3.10.0",
        "hardware": "BJINVENTECV2G5MC23-40A",
        "cpu": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
        "sockets": 2,
        "cores": 40,
        "threads": 80,
        "memory_bytes": 432 << 30,
        "storage_bytes": 3_600_000_000_000,
        "python": "3.11.2",
        "accelerators": [{"name": "Tesla V100-SXM2-16GB", "memory_bytes": 16 << 30} for _ in ranks],
        "driver": "450.80.02",
        "libraries": {"cuda": "11.0", "cudnn": "8.0.1", "nccl": "2.7.8", "cann": None, "numpy": "1.26.4"},
        "environment": {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"},
    }
