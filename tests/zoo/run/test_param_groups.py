"""Parameters with a learning rate and a weight decay of their own, and frozen ones."""

import numpy as np
import pytest

from tests.helpers.paths import CONFIGS
from zoo.config.schema import GroupRule, Optim
from zoo.data.errors import UserError
from zoo.models.tsm import spec as tsm
from zoo.run import job
from zoo.run.job import assemble, join
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

ARCH = tsm.Arch(18, num_classes=3, width=8, segments=2)
SHAPES = tsm.shapes(ARCH)
SMALL = [
    "data.name=synthetic",
    "data.kind=image",
    "data.size=32",
    "data.num_classes=3",
    "data.workers=0",
    "model.depth=18",
    "model.width=8",
    "train.global_batch=null",
    "train.batch=2",
]


def test_factors_of_all_rules_and_of_the_model_are_multiplied():
    rules = (GroupRule("fc.*", 0.1, 0.5), GroupRule(r".*\.bias", 0.2), GroupRule("layer1.*", freeze=True))
    group = job.param_groups(tsm, ARCH, Optim(weight_decay=1e-3, groups=rules))
    assert group("fc.weight") == pytest.approx((5 * 0.1, 1e-3 * 0.5))  # 5: TSM's factor of the classifier's weight
    assert group("fc.bias") == pytest.approx((10 * 0.1 * 0.2, 0))
    assert group("layer1.0.conv1.weight") == (0, 1e-3)
    assert group("layer2.0.conv1.weight") == (1, 1e-3)


def test_what_each_rule_matches_is_told():
    lines = job.describe_groups((GroupRule("fc.*", 0.1, 0.5), GroupRule(r"bn1\..*", freeze=True)), SHAPES)
    width = SHAPES["fc.weight"][1]
    assert lines == (
        f"optim.groups: fc.*: 2 parameters, {3 * width + 3} elements: learning rate x 0.1, weight decay x 0.5",
        r"optim.groups: bn1\..*: 2 parameters, 16 elements: not trained",  # without the statistics
    )
    assert job.describe_groups((), SHAPES) == ()


@pytest.mark.parametrize(
    "pattern, message",
    [
        ("layer1", r"'layer1' matches no parameter as a whole; there are conv1.weight, .* more, up to fc.bias"),
        (r".*\.running_mean", "matches no parameter"),
        (".*", "no parameter is left to train"),
    ],
)
def test_mistakes_end_before_a_framework_is_loaded(pattern, message):
    rule = f"optim.groups=[{{match: '{pattern}', freeze: true}}]"
    with pytest.raises(UserError, match=message):
        request = resolve_recipe(Options(str(CONFIGS / "resnet50_demo.yaml"), [*SMALL, rule], framework="mindspore"))
        assemble(request, join(request, {}))


def test_frozen_parameters_stay_and_others_move_by_their_factor():
    pytest.importorskip("torch")
    rules = "optim.groups=[{match: 'layer[12].*conv.*', freeze: true}, {match: 'fc.*', lr: 0.25}]"
    weights = []
    for change in ([], [rules]):
        request = resolve_recipe(
            Options(str(CONFIGS / "resnet50_demo.yaml"), [*SMALL, *change], framework="torch", device="cpu")
        )
        job = assemble(request, join(request, {}))
        rng = np.random.default_rng(1)
        start = {param.name: rng.normal(0, 0.1, param.shape).astype(np.float32) for param in job.trainer.params}
        start = {name: abs(array) if name.endswith("running_var") else array for name, array in start.items()}
        job.trainer.load_state_dict(start)
        rows = [job.train_set.sample(i, np.random.default_rng(i)) for i in range(2)]
        batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]} | {"valid": np.ones(2, np.uint8)}
        job.trainer.step([job.trainer.to_device(batch)], 0.1, 0)
        after = job.trainer.state_dict()
        weights.append({name: after[name] - start[name] for name in start})
    plain, changed = weights
    frozen = [name for name in plain if name.startswith(("layer1.", "layer2.")) and "conv" in name]
    assert len(frozen) == 8 and all(plain[name].any() for name in frozen)
    assert not any(changed[name].any() for name in frozen)
    for name in plain.keys() - set(frozen):
        factor = 0.25 if name.startswith("fc.") else 1
        np.testing.assert_allclose(changed[name], factor * plain[name], rtol=0, atol=1e-6 * abs(plain[name]).max())
