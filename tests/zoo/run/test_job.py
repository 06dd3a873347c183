"""Jobs of recipes: data of another kind are refused before a framework is imported; what keys make of an update."""

import pytest

from tests.helpers.paths import CONFIGS
from zoo.data.batch import LABEL, Field
from zoo.data.errors import UserError
from zoo.models import resolve_arch
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.optim.ema import Ema
from zoo.run.job import assemble, join
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.trainer.plan import Arithmetic
from zoo.trainer.torch.world import World


@pytest.mark.parametrize(
    "recipe, kind, expected",
    [
        ("tsm_torch_airank", "image", "data.segments: data.kind=image has size; choose another kind"),
        ("resnet50_mindspore_dlperf", "clip", r"model.name: resnet takes images, but .* shape \(8, 224, 224, 3\)"),
        ("resnet50_mindspore_dlperf", "face", "data.name: synthetic has samples for the task face, but resnet is a"),
        ("arcface_plsc_dlperf", "image", "for the task classify, but arcface .* choose another data set, or data.kind"),
        ("deeplabv3plus_mmseg_airank", "face", "data.crop: data.kind=face has size; choose another kind"),
    ],
)
def test_data_of_another_kind(recipe, kind, expected):
    changes = ["data.name=synthetic", f"data.kind={kind}", "data.workers=0"]
    with pytest.raises(UserError, match=expected):
        request = resolve_recipe(Options(str(CONFIGS / f"reports/{recipe}.yaml"), changes))
        assemble(request, join(request, {}))


def test_a_clip_model_on_images():
    with pytest.raises(UserError, match=r"model.name: the model takes clips, but .* shape \(32, 32, 3\)"):
        resolve_arch(tsm, tsm.Arch(), [Field("image", (32, 32, 3), "uint8"), LABEL], 5)


@pytest.mark.parametrize("framework", ["paddle", "mindspore"])
def test_the_state_of_the_optimizer_is_divided_in_pytorch_only(framework):
    changes = ["train.shard_optimizer=true"]
    request = resolve_recipe(Options(str(CONFIGS / "resnet50_demo.yaml"), changes, framework=framework))
    with pytest.raises(UserError, match=f"train.shard_optimizer: only PyTorch has it, not {framework}; leave it out"):
        assemble(request, None)


SMALL = (
    *("data.name=synthetic", "data.workers=0", "data.num_classes=5", "model.depth=18", "model.width=8"),
    *("train.epochs=null", "train.steps=9", "train.batch=4", "optim.warmup=0 steps"),
)
IMAGES = "resnet50_demo", "data.kind=image", "data.size=32"
FACES = "arcface_demo", "data.kind=face"
CHANGED = {  # what a key makes of the plan
    "seed=5": {"seed": 5},
    "train.accumulate=3": {"accumulate": 3},
    "train.checkpoint_activations=true": {"checkpointed_modules": resnet.checkpointed_modules(resnet.Arch(depth=18))},
    "train.ema=0.9": {"ema": Ema(0.9)},
    "train.sync_bn=true": {"sync_bn": True},
    "train.fp16_allreduce=true": {"fp16_allreduce": True},
    "train.shard_optimizer=true": {"shard_optimizer": True},
    "optim.clip_norm=0.5": {"clip_norm": 0.5},
    "optim.clip_sharded=false": {"clip_sharded": False},
    "optim.initial_loss_scale=256": {"loss_scale": 256.0},
    "optim.loss_scale=1024": {"loss_scale": 1024.0, "dynamic_loss_scale": False},
}


@pytest.fixture
def plan_of(monkeypatch):
    """A function that returns the plan of a small recipe with other keys, and the arithmetic of its world."""
    arithmetic = []
    monkeypatch.setattr(World, "set_arithmetic", lambda world, given: arithmetic.append(given))

    def plan_of(*changes, recipe=IMAGES, kept=None):
        path, *settings = recipe
        options = Options(str(CONFIGS / f"{path}.yaml"), [*SMALL, *settings, *changes], framework="torch")
        request = resolve_recipe(options)
        return assemble(request, join(request, {}), kept=kept or {}).plan, arithmetic[-1]

    return plan_of


def test_every_key_of_an_update_is_in_its_plan(plan_of):
    plain = vars(plan_of()[0])
    for change, expected in CHANGED.items():
        found = vars(plan_of(change)[0])
        changed = {name: value for name, value in found.items() if name in expected or value != plain[name]}
        changed = {name: value for name, value in changed.items() if name not in ("param_group", "optimizer")}
        assert changed == expected, change
    assert plan_of("train.ema=0.9", "train.ema_warmup=false")[0].ema == Ema(0.9, False)
    assert plan_of(recipe=FACES)[0].fp32_modules == ("fc", "features")


def test_precision_and_arithmetic_are_those_of_the_keys(plan_of):
    assert plan_of()[1] == Arithmetic()
    mixed, arithmetic = plan_of("train.precision=bf16", "train.eval_precision=amp")
    assert mixed.mode.is_mixed and mixed.eval_mixed and arithmetic == Arithmetic(cudnn_benchmark=True)
    assert not plan_of("train.precision=bf16")[0].eval_mixed
    assert plan_of("train.tf32=true")[1] == Arithmetic(True, True)
    assert plan_of("train.tf32=true", "train.deterministic=true")[1] == Arithmetic(True, False, True)
    assert plan_of("train.cudnn_benchmark=true")[1] == Arithmetic(cudnn_benchmark=True)


def test_factors_of_several_rules_are_multiplied(plan_of):
    rules = "{match: fc.*, lr: 10, decay: 0.5}, {match: fc.bias, lr: 3, decay: 0.2}, {match: conv1.*, freeze: true}"
    plain, plan = plan_of()[0].param_group, plan_of(f"optim.groups=[{rules}]")[0].param_group
    assert plan("fc.weight") == (10 * plain("fc.weight").lr_scale, 0.5 * plain("fc.weight").weight_decay)
    assert plan("fc.bias") == pytest.approx((30 * plain("fc.bias").lr_scale, 0.1 * plain("fc.bias").weight_decay))
    assert plan("conv1.weight").lr_scale == 0 and plan("bn1.weight") == plain("bn1.weight")


def test_a_resumed_run_keeps_its_memory_format(plan_of):
    for kept, changes, expected in (
        ({}, (), True),
        ({"framework": "torch", "channels_last": False}, (), False),
        ({"framework": "torch", "channels_last": False}, ("train.channels_last=true",), True),
        ({"framework": "paddle", "channels_last": False}, (), True),
    ):
        assert plan_of(*changes, kept=kept)[0].mode.channels_last is expected
