"""Facts of a run for its logs and checkpoints: the fields of the event `begin`."""

from typing import Any

from zoo.config.schema import Config
from zoo.run import schedule
from zoo.run.job import Job


def describe(job: Job, cfg: Config, weights: str) -> dict[str, Any]:
    """Return what the logs and the checkpoints record of a run.

    Args:
        job: data, schedule and trainer.
        cfg: the recipe.
        weights: where the initial weights come from.
    """
    return {
        "framework": cfg.framework,
        "device": job.world.device,
        **job.plan.mode._asdict(),
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
        "checksum": job.checksum,
    }
