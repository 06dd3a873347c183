"""Description of a run for its logs and checkpoints: most fields of the events `begin` and `resume`."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from zoo import program
from zoo.config import loader
from zoo.config.schema import Config, Optim
from zoo.data.convert import plain
from zoo.distributed import machine
from zoo.distributed.group import RANK_SPECIFIC_KEYS
from zoo.run import schedule
from zoo.run.job import Job
from zoo.run.pipeline import LoaderPlan
from zoo.run.request import FIND, Request

GIT_TIMEOUT = 10.0  # seconds
CODE = ("train.py", "zoo")  # what a run consists of
CODE_FILES = (".py", ".yaml")


def describe(job: Job, cfg: Config, weights: str) -> dict[str, Any]:
    """Return what the console, the checkpoints and the event `begin` record of a run."""
    return {
        "framework": job.framework,
        "device": job.world.device,
        **job.plan.mode._asdict(),
        "eval_compute": "fp32" if job.plan.mode.is_mixed and not job.plan.eval_mixed else job.plan.mode.compute,
        **job.batch_plan._asdict(),
        "launcher": job.group.launch.launcher,
        "global_batch": job.clock.global_batch,
        "steps": job.clock.steps,
        "lr": job.lr(0),
        "plan": schedule.describe(job.batch_plan, cfg.optim),
        "weights": weights,
        "classes": len(job.val_set.classes),
        "outputs": job.arch.num_classes,
        "parameters": sum(param.size for param in job.trainer.params if not param.is_statistic),
        "flops_per_sample": job.spec.flops(job.arch, job.train_set.fields[0].shape),
        "train_samples": len(job.train_set),
        "val_samples": len(job.val_set),
        "checksum": job.data.record.checksum,
    }


def begin(job: Job, request: Request, loader_plan: LoaderPlan, weights: str) -> dict[str, Any]:
    """Return what the event `begin` records beside `describe` and `place`: recipe, task, evaluation and optimizer."""
    cfg, settings = request.config, request.config.train
    return {
        "recipe": request.recipe,
        "model": job.model,
        "arch": json.loads(json.dumps(asdict(job.arch))),
        "task": cfg.task.task,
        "metric": job.task.PRIMARY,
        "data": request.resolved["data.name"].value,
        "protocol": protocol(job, cfg),
        "checksum_method": job.train_set.settings.checksum,
        "epochs": float(job.clock.epochs(job.clock.steps)) if settings.epochs is None else float(settings.epochs),
        "seed": cfg.seed,
        "target": cfg.target,
        "warmup_epochs": cfg.warmup_epochs,
        "eval_every": str(settings.eval_every),
        "command": sys.argv,
        **_changeable(job, request, loader_plan, weights),
    }


def resume(job: Job, request: Request, loader_plan: LoaderPlan, weights: str) -> dict[str, Any]:
    """Return what the event `resume` records beside `place`: what may differ from the run's begin."""
    return {
        "framework": request.config.framework,
        "device": job.world.device,
        **job.plan.mode._asdict(),
        **job.batch_plan._asdict(),
        "global_batch": job.clock.global_batch,
        **_changeable(job, request, loader_plan, weights),
    }


def place(job: Job, cfg: Config) -> dict[str, Any]:
    """Return code, framework and machines of a run. A collective call."""
    return {
        "framework_version": job.world.version,
        "git": git_state() if job.group.rank == 0 else None,
        "hosts": machine.gather(job.group, job.world, getattr(cfg.data, "root", ".")),
    }


def protocol(job: Job, cfg: Config) -> str:
    """Return the protocol id of the run's evaluations, such as k400/8x1x1@224 or cityscapes/whole@1024x2048."""
    data = job.val_set.protocol
    return f"{data.name}/{job.task.protocol(data.views, cfg.task)}"


def recipe_digest(resolved: loader.Entries, weights: str) -> str:
    """Return the sha256 of all keys and values of a recipe, without their origins, its device and paths.

    Args:
        resolved: the recipe. What its paths name is compared by the checksum of the data, and by that in `weights`.
        weights: where the initial weights come from; after their path it has the digest.
    """
    kept = loader.without_paths(resolved, FIND)
    values = {key: plain(entry.value) for key, entry in kept.items() if key not in RANK_SPECIFIC_KEYS}
    values["weights"] = weights.rpartition("sha256 ")[2]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def git_state(root: Path = program.ROOT) -> dict[str, Any] | None:
    """Return commit and dirtiness of the code; None if it is no checkout of its own, or git is not installed.

    Returns:
        `commit`, and `dirty`: whether the code (CODE) differs from it, or has a file that git neither tracks nor
        ignores. Other files, such as documents and tests, do not count.
    """
    try:
        folder, commit = _git(root, "rev-parse", "--show-toplevel", "HEAD").split("\n")
        changes = _git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--", *CODE).split("\0")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    dirty = any(change and (not change.startswith("?? ") or change.endswith(CODE_FILES)) for change in changes)
    return {"commit": commit, "dirty": dirty} if Path(folder).resolve() == root.resolve() else None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, check=True, timeout=GIT_TIMEOUT)
    return os.fsdecode(done.stdout).strip()


def _changeable(job: Job, request: Request, loader_plan: LoaderPlan, weights: str) -> dict[str, Any]:
    """Return what `begin` and `resume` have in common of recipe, precision, optimizer and reading of data."""
    cfg = request.config
    return {
        "recipe_sha256": recipe_digest(request.resolved, weights),
        "precision": cfg.train.precision,
        "eval_precision": cfg.train.eval_precision,
        "arithmetic": job.world.arithmetic(),
        "deterministic": cfg.train.deterministic,
        "loss_scale": _loss_scale(job),
        "optimizer": _optimizer(job, cfg),
        "eval_batch": cfg.train.eval_batch,
        "loader": loader_plan.loader,
        "workers": loader_plan.workers,
        "threads": job.train_set.settings.threads,
    }


def _loss_scale(job: Job) -> dict[str, Any] | None:
    """Return the loss scale, None where there is none: fp16 alone uses it."""
    plan = job.plan
    return {"initial": plan.loss_scale, "dynamic": plan.adapts_scale} if plan.mode.compute == "fp16" else None


def _optimizer(job: Job, cfg: Config) -> dict[str, Any]:
    optim, common = cfg.optim, {field.name for field in fields(Optim)}
    return {
        "name": optim.name,
        **{field.name: getattr(optim, field.name) for field in fields(optim) if field.name not in common},
        "weight_decay": optim.weight_decay,
        "clip_norm": optim.clip_norm,
        "lr": optim.lr,
        "base_batch": optim.base_batch,
        "peak_lr": schedule.base_lr(optim, job.clock.global_batch),
        "schedule": optim.schedule,
        "milestones": list(optim.milestones),
        "milestone_unit": "epochs" if cfg.train.epochs else "steps",
        "gamma": optim.gamma,
        "power": optim.power,
        "min_lr": optim.min_lr,
        "update": optim.update,
        "warmup": str(optim.warmup),
        "warmup_start": optim.warmup_start,
        "warmup_steps": schedule.warmup_steps(optim, job.clock),
    }
