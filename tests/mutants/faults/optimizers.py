"""Faults in optimizers other than SGD, in all three frameworks."""

from tests.mutants.fault import Fault
from tests.mutants.killers import OPTIMIZERS

UPDATES = f"{OPTIMIZERS}updates_in_fp32"
ADAMW, LARS, LAMB, NESTEROV = (("optim.name=" + name,) for name in ("adamw", "lars", "lamb", "sgd_nesterov"))


def faults(
    framework: str,
    coupled: tuple[str, str],
    corrected: str,
    trust_of_lars: tuple[str, str],
    trust_of_lamb: str,
    ahead: tuple[str, str],
) -> list[Fault]:
    """Return the same slips in a framework.

    Args:
        coupled: what becomes what if AdamW adds the decay to the gradient.
        corrected: AdamW's mean with its correction.
        trust_of_lars: what becomes what if the decay is left out of the trust ratio.
        trust_of_lamb: the trust ratio of LAMB.
        ahead: what becomes what if Nesterov's step ahead is missing.
    """
    rows = [
        ("adamw", "the decay of AdamW is coupled as well", *coupled, "tsm", ADAMW),
        ("adamw", "no bias correction of the mean", corrected, "mean * 1", "resnet50", ADAMW),
        ("lars", "the trust ratio of LARS lacks the decay", *trust_of_lars, "tsm", LARS),
        ("lamb", "the trust ratio of LAMB is upside down", trust_of_lamb, "of_update / of_weight", "resnet50", LAMB),
        ("sgd_nesterov", "no step ahead with Nesterov's momentum", *ahead, "tsm", NESTEROV),
    ]
    return [
        Fault(framework, name, f"zoo/trainer/{framework}/optimizers/{file}.py", old, new, UPDATES, recipe, options)
        for file, name, old, new, recipe, options in rows
    ]


FAULTS = [
    *faults(
        "torch",
        (
            "    mean = spec.beta1 * tensors.slots[0]",
            "    gradient = gradient + tensors.weight_decay * tensors.weight\n    mean = spec.beta1 * tensors.slots[0]",
        ),
        "mean / step.bias_correction(spec.beta1).to(mean.dtype)",
        ("slope + tensors.weight_decay * weight + spec.eps", "slope + spec.eps"),
        "of_weight / of_update",
        ("nesterov=True", "nesterov=False"),
    ),
    *faults(
        "paddle",
        (
            "    mean = number(spec.beta1, gradient)",
            "    gradient = gradient + number(tensors.weight_decay, gradient) * tensors.weight\n"
            "    mean = number(spec.beta1, gradient)",
        ),
        "mean / step.bias_correction(spec.beta1).astype(mean.dtype)",
        ("slope + number(tensors.weight_decay, gradient) * weight +", "slope +"),
        "of_weight / of_update",
        ("nesterov=True", "nesterov=False"),
    ),
    *faults(
        "mindspore",
        (
            "        mean = self.beta1 * mean",
            "        gradient = gradient + weight_decay * weight\n        mean = self.beta1 * mean",
        ),
        "mean / self.bias_correction(self.log_beta1, applied)",
        ("of_gradient + weight_decay * of_weight + self.eps", "of_gradient + self.eps"),
        "of_weight / of_update",
        ("lr * (direction + self.momentum * momentum)", "lr * momentum"),
    ),
    Fault(
        "torch",
        "the correction of AdamW's fused kernel is a step ahead",
        "zoo/trainer/torch/optimizers/adamw.py",
        "(step.applied - 1)",
        "step.applied",
        UPDATES,
        "resnet50",
        ADAMW,
    ),
    Fault(
        "mindspore",
        "factors of the learning rate are ignored by AdamW",
        "zoo/trainer/mindspore/optimizers/elementwise.py",
        "self.formula(lr * lr_scale, applied",
        "self.formula(lr, applied",
        UPDATES,
        "tsm",
        ADAMW,
    ),
]
