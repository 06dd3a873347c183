"""Hints at the key that was meant by an unknown one."""

import difflib
from collections.abc import Sequence

# Key of the zoo -> the names that other projects have for it: torchvision's references, timm, mmengine, PaddleClas,
# PaddleVideo, mindcv, PyTorch Lightning, Hugging Face.
SYNONYMS = {
    "optim.lr": ("learning_rate", "base_lr", "init_lr", "lr_init"),
    "optim.schedule": ("lr_scheduler", "lr_scheduler_type", "scheduler", "sched", "lr_config", "lr_policy"),
    "optim.milestones": ("lr_steps", "decay_epochs", "lr_step_size", "decay_milestones", "multi_step_decay_milestones"),
    "optim.gamma": ("lr_gamma", "decay_rate", "multi_step_decay_gamma"),
    "optim.min_lr": ("eta_min", "lr_min", "end_lr", "cosine_eta_min"),
    "optim.warmup": ("warmup_iters", "warmup_steps", "warmup_epoch", "lr_warmup_epochs", "warmup_ratio"),
    "optim.weight_decay": ("wd", "l2", "l2_decay", "regularizer", "decay"),
    "optim.clip_norm": ("clip_grad", "clip_grad_norm", "grad_clip", "max_grad_norm", "gradient_clip_val", "clip_value"),
    "optim.loss_scale": ("scale_loss", "static_loss_scale"),
    "train.batch": ("batch_size", "train_batch_size", "per_device_train_batch_size", "samples_per_gpu", "bs"),
    "train.eval_batch": ("eval_batch_size", "val_batch_size", "validation_batch_size", "per_device_eval_batch_size"),
    "train.epochs": ("num_epochs", "max_epochs", "num_train_epochs", "epoch_size", "n_epochs"),
    "train.steps": ("iters", "max_iters", "max_steps", "num_steps", "total_iters", "iterations"),
    "train.accumulate": (
        "accumulate_grad_batches",
        "accumulation_steps",
        "accumulative_counts",
        "grad_accum_steps",
        "gradient_accumulation_steps",
    ),
    "train.precision": ("amp", "use_amp", "fp16", "bf16", "dtype", "mixed_precision"),
    "train.amp_level": ("opt_level", "amp_opt_level"),
    "train.sync_bn": ("syncbn", "sync_batchnorm", "sync_batch_norm", "use_sync_bn"),
    "train.ema": ("ema_decay", "model_ema", "model_ema_decay", "use_ema"),
    "train.compile": ("torchcompile", "torch_compile", "to_static", "mode"),
    "train.channels_last": ("memory_format", "data_format"),
    "train.checkpoint_activations": ("grad_checkpointing", "gradient_checkpointing", "recompute", "with_cp"),
    "train.eval_every": ("eval_interval", "val_interval", "eval_freq", "check_val_every_n_epoch"),
    "train.save_every": ("save_interval", "save_freq", "checkpoint_interval", "save_steps"),
    "train.log_every": ("log_interval", "log_freq", "print_freq", "print_batch_step", "log_every_n_steps"),
    "train.keep_checkpoints": ("keep", "checkpoint_hist", "keep_checkpoint_max", "max_keep_ckpts", "save_total_limit"),
    "data.root": ("data_dir", "data_path", "data_root", "dataset_root", "root_dir"),
    "data.workers": ("num_workers", "num_parallel_workers", "workers_per_gpu", "dataloader_num_workers"),
    "data.size": ("crop_size", "image_resize", "img_size", "image_size", "input_size", "train_crop_size"),
    "data.augment": (
        "aa",
        "auto_augment",
        "augmentation",
        "augmentations",
        "train_pipeline",
        "transform",
        "transforms",
    ),
    "data.mixup": ("mixup_alpha",),
    "data.cutmix": ("cutmix_alpha",),
    "data.mix_prob": ("mixup_prob",),
    "data.mix_switch": ("mixup_switch_prob", "switch_prob"),
    "data.segments": ("clip_len", "num_frames", "num_seg", "num_segments"),
    "model.depth": ("arch", "backbone", "network"),
    "model.num_classes": ("class_num", "n_classes", "nb_classes"),
    "task.label_smoothing": ("ls", "label_smooth", "smoothing", "smooth_alpha"),
    "weights": ("checkpoint", "finetune", "init_checkpoint", "load_from", "pretrained_model"),
    "out": ("log_dir", "output", "output_dir", "save_dir", "work_dir"),
    "seed": ("manual_seed", "random_seed"),
}


def nearest(key: str, known: Sequence[str]) -> str | None:
    """Return the key that was meant by an unknown one: of the same name, by another project's name, or most similar."""
    return next(iter([*_same_name(key, known), *_synonyms(key, known), *_similar(key, known)]), None)


def suggestion(key: str, known: Sequence[str]) -> str:
    """Return a hint at the key that was meant by an unknown one, as the end of a message.

    It is the key of the same name in another section, or that with another project's name for it, or the most similar
    one; without any of these, all keys of the section.
    """
    meant = nearest(key, known)
    if meant:
        return f"; did you mean {meant}?"
    section = key.split(".")[0]
    in_section = [other for other in known if other.startswith(section + ".")]
    return f"; there are: {', '.join(in_section or sorted({other.split('.')[0] for other in known}))}"


def _same_name(key: str, known: Sequence[str]) -> list[str]:
    return [other for other in known if _name(other) == _name(key)]


def _synonyms(key: str, known: Sequence[str]) -> list[str]:
    name = _name(key).lower().replace("-", "_")
    return [ours for ours, theirs in SYNONYMS.items() if name in theirs and ours in known]


def _similar(key: str, known: Sequence[str]) -> list[str]:
    """Return the keys that resemble a key, or have another project's name that does."""
    other_names = {f"{ours.rpartition('.')[0]}.{name}": ours for ours in known for name in SYNONYMS.get(ours, ())}
    meant = {**dict(zip(known, known)), **other_names}
    by_name = {_name(each): ours for each, ours in reversed(meant.items())}
    wholes, names = (difflib.get_close_matches(*pair, 1, 0.6) for pair in ((key, meant), (_name(key), by_name)))
    return [*(meant[each] for each in wholes), *(by_name[each] for each in names)]


def _name(key: str) -> str:
    return key.rsplit(".", 1)[-1]
