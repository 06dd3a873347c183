"""The PyTorch trainer's one update, against plain PyTorch and numpy."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from data.batch import Field
from zoo.models import initializers
from zoo.models.tsm import spec
from zoo.models.tsm.torch import Model
from zoo.tasks.classify import CrossEntropy
from zoo.trainer.protocol import Launch, Mode, Plan
from zoo.trainer.torch import Trainer, start

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FIELDS = (Field("video", (2, 16, 16, 3), "uint8", MEAN, STD), Field("label", (), "int64"))


def make(decay=1e-2, smoothing=0.0, arch=None, compute="fp32", channels_last=True, **plan):
    arch = arch or spec.Arch(depth=18, width=8, num_classes=5, segments=2, dropout=0.0)

    def param_group(name):
        factor, share = spec.lr_and_decay_scale(arch, name)
        return factor, share * decay

    noise = spec.dropout_masks(arch)
    trainer = Trainer(
        Model,
        arch,
        CrossEntropy(smoothing),
        Plan(
            FIELDS + tuple(source.field for source in noise),
            tuple(source.name for source in noise),
            param_group,
            Mode(compute, None, channels_last, False),
            **plan,
        ),
        start(Launch(), "cpu"),
    )
    trainer.load_state_dict(
        {
            param.name: initializers.initialize(
                spec.initializer(arch, param.name, param.shape), 1, param.name, param.shape
            )
            for param in trainer.params
        }
    )
    return trainer


def batch(rows=4, seed=0, **more):
    rng = np.random.default_rng(seed)
    return {
        "video": rng.integers(0, 256, (rows, 2, 16, 16, 3), dtype=np.uint8),
        "label": rng.integers(0, 5, rows),
        "valid": np.ones(rows, np.uint8),
        **more,
    }


def normalised(video):
    scaled = (video.astype(np.float64) / 255 - np.array(MEAN)) / np.array(STD)
    return torch.from_numpy(scaled.astype(np.float32)).movedim(-1, -3)


def reference_steps(trainer, batches, lrs, clip, smoothing=0.0, momentum=0.9):
    """Plain PyTorch: the same updates, written with its own optimizer and clipping, in NCHW."""
    net = copy.deepcopy(trainer.model).to(memory_format=torch.contiguous_format).train()
    groups = [
        {
            "params": [parameter],
            "factor": trainer.plan.param_group(name)[0],
            "weight_decay": trainer.plan.param_group(name)[1],
        }
        for name, parameter in net.named_parameters()
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=momentum, foreach=False)
    seen = []
    for one, lr in zip(batches, lrs):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(normalised(one["video"])), torch.from_numpy(one["label"]), label_smoothing=smoothing)
        loss.backward()
        norm = (
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            if clip
            else torch.nn.utils.get_total_norm([parameter.grad for parameter in net.parameters()])
        )
        for group in optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        optimizer.step()
        seen.append((loss.item(), norm.item()))
    return net, seen


@pytest.mark.parametrize("clip, smoothing, channels_last", [(None, 0.0, True), (0.5, 0.1, True), (0.5, 0.0, False)])
def test_updates_equal_plain_pytorch(clip, smoothing, channels_last):
    trainer = make(clip_norm=clip, smoothing=smoothing, channels_last=channels_last)
    batches, lrs = [batch(seed=seed) for seed in range(3)], [0.05, 0.02, 0.01]
    net, seen = reference_steps(trainer, batches, lrs, clip, smoothing)
    for one, lr, (loss, norm) in zip(batches, lrs, seen):
        numbers = trainer.read(trainer.step([trainer.to_device(one)], lr, 0))
        assert numbers["loss"] == pytest.approx(loss, rel=2e-5)
        assert numbers["grad_norm"] == pytest.approx(norm, rel=1e-3)
        assert numbers["skipped"] == 0
        assert clip is None or norm > clip  # else the case tests nothing
    for name, parameter in net.named_parameters():
        ours = trainer.tensors[name].detach()
        assert torch.allclose(ours, parameter, rtol=1e-3, atol=2e-5), name


def test_the_first_update_is_the_formula():
    """p - lr * factor * (c * g + decay * p), c from the global norm: in numpy, from the gradients themselves."""
    raw = make()
    raw.step([raw.to_device(batch())], 0.0, 0)
    gradients = {name: tensor.grad.numpy().astype(np.float64) for name, tensor in raw.trainable.items()}
    trainer = make(clip_norm=0.5)
    before = trainer.state_dict()
    output = trainer.read(trainer.step([trainer.to_device(batch())], 0.05, 0))
    after = trainer.state_dict()
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    assert output["grad_norm"] == pytest.approx(norm, rel=1e-5)
    for name, gradient in gradients.items():
        factor, decay = trainer.plan.param_group(name)
        step = gradient * min(1.0, 0.5 / norm) + decay * before[name]
        np.testing.assert_allclose(after[name], before[name] - 0.05 * factor * step, rtol=1e-5, atol=1e-7, err_msg=name)
        np.testing.assert_allclose(after[f"momentum/{name}"], step, rtol=1e-4, atol=1e-7, err_msg=name)


def test_two_parts_are_one_batch():
    """With frozen statistics, accumulating is exact: the mean over all samples, not a mean of means."""
    arch = spec.Arch(depth=18, width=8, num_classes=5, segments=2, dropout=0.0, partial_bn=True)
    whole, split = make(arch=arch), make(arch=arch, accumulate=2)
    for trainer in (whole, split):
        trainer.frozen.append(trainer.model.bn1)  # the one that partial_bn leaves
    both = batch(rows=6)
    parts = [{name: array[rows] for name, array in both.items()} for rows in (slice(0, 2), slice(2, 6))]
    a = whole.read(whole.step([whole.to_device(both)], 0.1, 0))
    b = split.read(split.step([split.to_device(part) for part in parts], 0.1, 0))
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
    for name, value in whole.state_dict().items():
        np.testing.assert_allclose(split.state_dict()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_pixels_are_normalised_as_the_field_says():
    trainer = make()
    one = batch()
    ours = trainer.preprocess(trainer.to_device(one)["video"]).numpy()
    np.testing.assert_allclose(ours, normalised(one["video"]).numpy(), atol=1e-6)


def test_a_step_without_finite_gradient_changes_nothing():
    trainer = make(clip_norm=1.0)
    trainer.step([trainer.to_device(batch())], 0.1, 0)
    before = trainer.state_dict()
    trainer.scaler.scale.fill_(float("inf"))
    numbers = trainer.read(trainer.step([trainer.to_device(batch(seed=1))], 0.1, 0))
    after = trainer.state_dict()
    assert numbers["skipped"] == 1 and numbers["consecutive_skips"] == 1 and not np.isfinite(numbers["grad_norm"])
    for name in trainer.trainable:
        np.testing.assert_array_equal(after[name], before[name])
        np.testing.assert_array_equal(after[f"momentum/{name}"], before[f"momentum/{name}"])
    trainer.scaler.scale.fill_(1.0)
    numbers = trainer.read(trainer.step([trainer.to_device(batch(seed=1))], 0.1, 0))
    assert numbers["skipped"] == 1 and numbers["consecutive_skips"] == 0


def test_the_first_step_may_be_skipped():
    trainer = make()
    trainer.scaler.scale.fill_(float("inf"))
    trainer.step([trainer.to_device(batch())], 0.1, 0)
    assert all((value == 0).all() for name, value in trainer.state_dict().items() if name.startswith("momentum/"))


def test_the_loss_scale_halves_and_doubles():
    trainer = make(compute="fp16", loss_scale=8.0)
    trainer.model.fc.weight.data.fill_(float("nan"))
    assert trainer.read(trainer.step([trainer.to_device(batch())], 0.1, 0))["scale"] == 8.0
    assert float(trainer.scaler.scale) == 4.0
    assert trainer.nonfinite_report().startswith("not finite: weight or statistic fc.weight")
    trainer.model.fc.weight.data.normal_(0, 0.01)
    trainer.scaler.good_steps.fill_(1999)
    assert trainer.read(trainer.step([trainer.to_device(batch())], 0.1, 0))["consecutive_skips"] == 0
    assert float(trainer.scaler.scale) == 8.0 and float(trainer.scaler.good_steps) == 0.0


def test_the_scale_is_taken_out_of_the_gradient():
    plain, scaled = make(compute="bf16"), make(compute="bf16")
    scaled.scaler.scale.fill_(1024.0)  # a power of two: exact
    norms = [
        trainer.read(trainer.step([trainer.to_device(batch())], 0.1, 0))["grad_norm"] for trainer in (plain, scaled)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    for name in plain.trainable:
        np.testing.assert_allclose(scaled.state_dict()[name], plain.state_dict()[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("compute, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)])
def test_mixed_precision_is_real(compute, dtype):
    trainer, seen = make(compute=compute), []
    trainer.model.layer1[0].conv1.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    trainer.step([trainer.to_device(batch())], 0.1, 0)
    trainer.predict(trainer.to_device(batch()))
    assert seen == [dtype, torch.float32]  # evaluation is fp32
    assert all(tensor.dtype == torch.float32 for tensor in trainer.tensors.values())


def test_partial_bn_freezes_all_but_the_first():
    arch = spec.Arch(depth=18, width=8, num_classes=5, segments=2, dropout=0.0, partial_bn=True)
    trainer = make(arch=arch)
    before = trainer.state_dict()
    trainer.step([trainer.to_device(batch())], 0.5, 0)
    trainer.predict(trainer.to_device(batch()))  # evaluation must not unfreeze
    trainer.step([trainer.to_device(batch())], 0.5, 0)
    changed = {
        name
        for name, value in trainer.state_dict().items()
        if name in before and "/" not in name and not np.array_equal(value, before[name])
    }
    norms = {param.name for param in trainer.params if spec.resnet.is_norm(param.name)}
    assert changed & norms == {f"bn1.{part}" for part in ("weight", "bias", "running_mean", "running_var")}
    assert {param.name for param in trainer.params} - norms <= changed


def test_dropout_follows_the_mask_and_stays_out_of_evaluation():
    arch = spec.Arch(depth=18, width=8, num_classes=5, segments=2, dropout=0.5)
    trainer, one = make(arch=arch), batch()
    kept, gone = (batch(dropout=np.full((4, 2, 64), value, np.uint8)) for value in (1, 0))
    trainer.model.eval()
    with torch.no_grad():
        x = trainer.preprocess(trainer.to_device(one)["video"])
        plain = trainer.model(x) - trainer.model.fc.bias
        doubled = trainer.model(x, torch.from_numpy(kept["dropout"])) - trainer.model.fc.bias
        nothing = trainer.model(x, torch.from_numpy(gone["dropout"])) - trainer.model.fc.bias
    torch.testing.assert_close(doubled, 2 * plain)
    assert (nothing == 0).all()
    expected = (plain + trainer.model.fc.bias).detach().numpy()
    np.testing.assert_allclose(trainer.predict(trainer.to_device(one)), expected, atol=1e-6)


def test_dump_and_load_continue_bit_for_bit():
    first = make(clip_norm=1.0)
    for seed in range(2):
        first.step([first.to_device(batch(seed=seed))], 0.05, 0)
    second = make(clip_norm=1.0)
    second.load_state_dict(first.state_dict())
    for trainer in (first, second):
        for seed in (2, 3):
            trainer.step([trainer.to_device(batch(seed=seed))], 0.02, 0)
    for name, value in first.state_dict().items():
        assert np.array_equal(second.state_dict()[name], value), name


def test_parameters_and_statistics_are_told_apart():
    trainer = make()
    assert not any("num_batches" in param.name for param in trainer.params)
    statistics = {param.name for param in trainer.params if param.is_statistic}
    assert statistics == {param.name for param in trainer.params if "running_" in param.name} and statistics
    assert sum(param.size for param in trainer.params if not param.is_statistic) == sum(
        parameter.numel() for parameter in trainer.model.parameters()
    )
