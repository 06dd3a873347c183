"""Recipes whose data set is not one for the model are refused before a framework is imported."""

import pytest

from tests.helpers.paths import CONFIGS
from zoo.data.batch import LABEL, Field
from zoo.data.errors import UserError
from zoo.models import resolve_arch
from zoo.models.tsm import spec as tsm
from zoo.run.job import assemble, join
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options


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
