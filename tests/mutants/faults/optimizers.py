"""Faults in optimizers other than SGD: in the formulas, which all frameworks run, and in the kernels of each."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import OPTIMIZERS
from zoo.frameworks import FRAMEWORKS

UPDATES = f"{OPTIMIZERS}updates_in_fp32"
ADAMW, LARS, LAMB, NESTEROV = ((f"optim.name={name}",) for name in ("adamw", "lars", "lamb", "sgd_nesterov"))
FORMULAS = [
    (
        "the decay of AdamW is coupled as well",
        "zoo/optim/adamw.py",
        "        mean = beta1 * slots[0]",
        "        gradient = math.decayed(gradient, weight, decay)\n        mean = beta1 * slots[0]",
        "tsm",
        ADAMW,
    ),
    (
        "no bias correction of the mean",
        "zoo/optim/adamw.py",
        "mean / math.bias_correction(self.log_beta1, applied, weight)",
        "mean * 1",
        "resnet50",
        ADAMW,
    ),
    (
        "the trust ratio of LARS lacks the decay",
        "zoo/optim/lars.py",
        "of_gradient + math.number(decay, weight) * of_weight +",
        "of_gradient +",
        "tsm",
        LARS,
    ),
    (
        "the trust ratio of LAMB is upside down",
        "zoo/optim/lamb.py",
        "of_weight / of_step",
        "of_step / of_weight",
        "resnet50",
        LAMB,
    ),
]
AHEAD = {
    "torch": ("zoo/trainer/torch/kernels.py", 'nesterov=spec.name == "sgd_nesterov"', "nesterov=False"),
    "paddle": ("zoo/trainer/paddle/kernels.py", "nesterov=True", "nesterov=False"),
    "mindspore": ("zoo/optim/sgd_nesterov.py", "return slope + factor * momentum", "return momentum"),
}
ahead = partial(Fault, name="no step ahead with Nesterov's momentum", killer=UPDATES, recipe="tsm", options=NESTEROV)

FAULTS = [
    *(
        Fault(framework, name, file, old, new, UPDATES, recipe, options)
        for framework in FRAMEWORKS
        for name, file, old, new, recipe, options in FORMULAS
    ),
    *(ahead(framework, file=file, old=old, new=new) for framework, (file, old, new) in AHEAD.items()),
    Fault(
        "torch",
        "the correction of AdamW's fused kernel is a step ahead",
        "zoo/trainer/torch/kernels.py",
        "(applied - 1)",
        "applied",
        UPDATES,
        "resnet50",
        ADAMW,
    ),
    Fault(
        "mindspore",
        "factors of the learning rate are ignored by AdamW",
        "zoo/trainer/mindspore/optimizer.py",
        "lr * self.math.number(lr_scale, weight) * step",
        "lr * step",
        UPDATES,
        "tsm",
        ADAMW,
    ),
]
