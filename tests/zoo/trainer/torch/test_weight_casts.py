"""Weights that are cast in groups: the updates are bit by bit those of autocast's own casts."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.helpers.frameworks import adapter
from tests.zoo.trainer.checkpointing_cases import SMALL_ARCHS
from tests.zoo.trainer.trainer_setup import assert_equal, make_model, random_inputs, update
from zoo.models import load_spec
from zoo.trainer.plan import Mode, ParamGroup
from zoo.trainer.torch import model as models
from zoo.trainer.torch.world import World

UPDATES, CLASSES = 10, 5
SHAPES = {"arcface": (32, 32, 3), "resnet": (32, 32, 3), "tsm": (2, 32, 32, 3)}
BF16, FP16 = Mode("bf16", "O1", True, False), Mode("fp16", "O1", True, False)
LOSS_SCALE = 2.0**8
FROZEN = "layer1.0.conv1.weight"


def make(name, mode, **plan):
    """Return a trainer of a small model, one of whose convolutions is frozen."""
    spec, options = load_spec(name), SMALL_ARCHS[name]
    modules = spec.checkpointed_modules(spec.Arch(**options))[::2]
    plan |= {"fp32_modules": spec.FP32_MODULES, "checkpointed_modules": modules}
    plan["group"] = lambda parameter: ParamGroup(float(FROZEN not in parameter), 1e-4)
    return make_model(adapter("torch"), name, options, SHAPES[name], CLASSES, mode=mode, **plan)[0]


def cast_names(trainer):
    names = {id(tensor): name for name, tensor in trainer.tensors.items()}
    return [names[id(weight)] for group in trainer.cast_groups for _, _, weight in group]


def overflow(gradient):
    return gradient * float("inf")


@pytest.mark.parametrize(
    "name, mode, has_bf16", [("arcface", BF16, True), ("resnet", FP16, True), ("tsm", BF16, True), ("tsm", BF16, False)]
)
def test_updates_are_those_of_autocast(name, mode, has_bf16, monkeypatch):
    """In several groups, with micro-batches, activations that are computed again and a skipped update.

    Without instructions for bf16, convolutions of the CPU emulate it.
    """
    monkeypatch.setattr(World, "has_bf16", has_bf16)
    monkeypatch.setattr(models, "CAST_ELEMENTS", 3000)
    trainer, plain = (make(name, mode, accumulate=2, loss_scale=LOSS_SCALE) for _ in range(2))
    names, before, plain.cast_groups = cast_names(trainer), trainer.state_dict(), []
    assert len(trainer.cast_groups) > 3 and not any(FROZEN in each for each in names)
    for step in range(UPDATES):
        batches = [random_inputs(trainer, CLASSES, seed=2 * step + part) for part in range(2)]
        hooks = [each.tensors["fc.weight"].register_hook(overflow) for each in (trainer, plain) if step == 3]
        numbers, expected = (update(each, *batches, step=step) for each in (trainer, plain))
        np.testing.assert_equal(numbers, expected)
        for hook in hooks:
            hook.remove()
    assert numbers["skipped"] == 1
    after = trainer.state_dict()
    assert_equal(after, plain.state_dict())
    assert not any(np.array_equal(after[each], before[each]) for each in names)


@pytest.mark.parametrize("changes", [{"compute": "fp32"}, {"compile": True}])
def test_no_weight_is_cast_without_autocast_or_by_the_compiler(changes):
    trainer = make("resnet", BF16)
    plan = dataclasses.replace(trainer.plan, mode=BF16._replace(**changes))
    assert trainer.cast_groups and not models.cast_groups(trainer.model, plan)


def test_layers_in_fp32_and_normalizations_keep_their_weights():
    trainer = make("arcface", FP16)
    fp32 = {name for name, weight in trainer.trainable.items() if weight.dim() == 1 and "prelu" not in name}
    fp32 |= {
        "fc.weight",
        *(f"layer{stage}.0.downsample.0.weight" for stage in (1, 2)),
    }  # these of a class of cpu_layers
    assert sorted(cast_names(trainer)) == sorted(trainer.trainable.keys() - fp32)


def test_weights_are_back_after_an_error():
    trainer = make("resnet", FP16)
    with pytest.raises(ValueError, match="planned"), models.cast_weights(trainer.cast_groups, torch.float16):
        assert trainer.model.conv1.weight.dtype == torch.float16
        raise ValueError("planned")
    assert dict(trainer.model.named_parameters()).keys() == trainer.trainable.keys() | {FROZEN}
    assert all(trainer.tensors[name] is weight for name, weight in trainer.model.named_parameters())


def test_gradients_do_not_wait_for_the_end_of_the_backward_pass():
    """As DistributedDataParallel needs them: those of a group are there once its layers are done, in every pass."""
    layers, done = [torch.nn.Linear(8, 8, bias=False) for _ in range(4)], []
    for i, layer in enumerate(layers):
        layer.weight.register_post_accumulate_grad_hook(lambda _, i=i: done.append(f"weight {i}"))
    places = [(layer._parameters, "weight", layer.weight) for layer in layers]
    with models.cast_weights([places[:2], places[2:]], torch.bfloat16):
        for _ in range(2):
            y = torch.ones(1, 8, dtype=torch.bfloat16)
            for i, layer in enumerate(layers):
                y = layer(y)
                y.register_hook(lambda _, i=i: done.append(f"output {i}"))
            y.sum().backward()
    first, last = ["output 1", "output 0", "weight 0", "weight 1"], ["output 3", "output 2", "weight 2", "weight 3"]
    assert done == 2 * [*last, *first]
