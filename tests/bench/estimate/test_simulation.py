"""The simulated peak of a forward and backward pass is that of real tensors."""

import pytest

from zoo.bench.estimate import simulation
from zoo.bench.estimate.simulation import Passes
from zoo.data.batch import LABEL, Field
from zoo.models import load_spec
from zoo.tasks import load_task

torch = pytest.importorskip("torch")

from zoo.bench.estimate.live import Live  # noqa: E402  (needs PyTorch)

SPEC = load_spec("resnet")
ARCH = SPEC.Arch(depth=18, width=8, num_classes=5)
TASK = load_task("classify")


def passes(is_half=False, checkpointed=()):
    field = Field("image", (32, 32, 3), "uint8", (0.5,) * 3, (0.5,) * 3)
    return Passes("resnet", ARCH, (), (field, LABEL), 64, is_half, checkpointed, TASK, TASK.Settings())


def real_peak(checkpointed):
    """Return the peak of the same passes, computed."""
    from zoo.models.resnet.torch import Model
    from zoo.trainer.torch.checkpointing import checkpoint_modules

    model = Model(ARCH).train()
    checkpoint_modules(model, checkpointed)
    images, labels = torch.randn(64, 3, 32, 32), torch.zeros(64, dtype=torch.int64)
    with Live([*model.parameters(), *model.buffers(), images, labels]) as live:
        torch.nn.functional.cross_entropy(model(images.clone()), labels, reduction="sum").backward()
    return live.peak


@pytest.mark.parametrize("checkpointed", [(), SPEC.checkpointed_modules(ARCH)], ids=["kept", "computed again"])
def test_as_with_real_tensors(checkpointed):
    assert simulation.peak(passes(checkpointed=checkpointed)) == pytest.approx(real_peak(checkpointed), rel=0.02)


def test_sixteen_bits_take_less():
    full, half = (simulation.peak(passes(is_half)) for is_half in (False, True))
    assert 0.4 * full < half < 0.8 * full


def test_more_samples_take_more():
    one = simulation.peak(passes())
    two = simulation.peak(passes()._replace(batch=128))
    assert 1.8 * one < two < 2.05 * one


@pytest.mark.parametrize("model, kind", [("tsm", "clip"), ("deeplabv3plus", "scene"), ("arcface", "face")])
def test_every_model_can_be_simulated(model, kind):
    from zoo.data.datasets import synthetic

    spec = load_spec(model)
    sizes = {"clip": {"size": 32, "segments": 2}, "scene": {"crop": (32, 64)}, "face": {"size": 32}}[kind]
    train_set, _ = synthetic.load(synthetic.Settings(kind=kind, num_classes=7, **sizes))
    arch = spec.resolve(spec.Arch(depth=18, width=8), train_set.fields, 7)
    task = load_task(spec.TASK)
    found = [
        simulation.peak(
            Passes(model, arch, spec.dropout_masks(arch), train_set.fields, 4, False, names, task, task.Settings())
        )
        for names in ((), spec.checkpointed_modules(arch))
    ]
    assert 0 < found[1] < found[0]
