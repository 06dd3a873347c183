"""zoo/compare/opinions.py: right code has no findings, and a slip in code that all frameworks share has one."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tests.test_architecture import NAMES, imports
from tests.zoo.trainer import loss_cases, margin_cases
from tests.zoo.trainer.tiny_reference import CLASSES, random_batch
from tests.zoo.trainer.torch import adapter
from tests.zoo.trainer.trainer_setup import IMAGE, copied_state
from zoo.compare import evaluations, opinions, recipes
from zoo.compare.reference import losses, recipe
from zoo.config.schema import Duration, GroupRule, Train
from zoo.data import order
from zoo.data.batch import LABEL
from zoo.distributed.group import Group
from zoo.losses import LOSSES, load_loss
from zoo.models import load_spec
from zoo.optim import load_settings, schedules
from zoo.optim.ema import Ema
from zoo.run import dataset, schedule
from zoo.run.job import param_groups
from zoo.tasks import classify, load_task
from zoo.trainer import numpy_ops, objectives, sharding, update
from zoo.trainer.objectives import Classification
from zoo.trainer.pixels import resize_bilinear
from zoo.trainer.plan import Mode, ParamGroup, Plan

GROUP = Group(SimpleNamespace(rank=0, size=1), {}, None)
FP64 = adapter.FP64_MODES[0]


def test_the_reference_shares_no_code_with_what_it_judges():
    files = [name for name in NAMES if name.startswith("zoo/compare/reference/")]
    assert len(files) > 4
    for name in files:
        assert {each.module.split(".")[0] for each in imports(name)} <= {
            "numpy",
            "math",
            "re",
            "typing",
            "collections",
            "itertools",
        }


# Losses


def test_every_loss_of_the_zoo_has_a_definition():
    assert {task: set(names) for task, names in losses.DEFINED.items()} == {
        task: set(names) for task, names in LOSSES.items()
    }
    job = SimpleNamespace(loss=SimpleNamespace(task="classify", loss="poly1"), model="resnet")
    assert opinions.missing(job) == ["the loss poly1"]  # of a package
    job.loss = SimpleNamespace(task="face", loss="arcface", sample_rate=0.1)
    assert opinions.missing(job) == ["the loss arcface of sampled classes"]


def of_loss(trainer, batches, loss):
    """Do an update and return the opinions on it; the trainer keeps its state."""
    job = SimpleNamespace(framework="torch", loss=loss, group=GROUP)
    state = copied_state(trainer)
    before = {param.name: state[param.name] for param in trainer.params}
    on_device = [trainer.to_device(batch) for batch in batches]
    numbers = trainer.read(trainer.step(on_device, 0.1, 0))
    after = copied_state(trainer)
    found = opinions.of_loss(job, trainer, before, trainer.gradients(), on_device, batches, numbers["loss"])
    for name, value in copied_state(trainer).items():
        np.testing.assert_array_equal(value, after[name])
    return found


@pytest.mark.parametrize("variant", loss_cases.CLASSIFY)
def test_losses_of_classifiers_are_right(variant):
    name, options = loss_cases.CLASSIFY[variant]
    trainer = loss_cases.make(adapter, name, options, False, FP64)
    assert of_loss(trainer, [loss_cases.samples(False)], load_loss("classify", name)(**options)) == []


def test_the_definition_knows_better_than_all_frameworks():
    """A wrong share of smoothing; and a right loss with a wrong gradient."""
    loss = load_loss("classify", "cross_entropy")
    trainer = loss_cases.make(adapter, "cross_entropy", {"label_smoothing": 0.11}, False, FP64)
    value, gradient = of_loss(trainer, [loss_cases.samples(False)], loss(label_smoothing=0.1))
    assert "the loss of the first update is" in value and "does not fit the loss" in gradient
    trainer, total = loss_cases.make(adapter, "cross_entropy", {}, False, FP64), Classification.total

    def scaled(factor):
        right = partial(total, trainer.objective)
        return lambda *batch: factor * right(*batch) + (1 - factor) * right(*batch).detach()

    trainer.objective.total = scaled(1.01)
    (gradient,) = of_loss(trainer, [loss_cases.samples(False)], loss())
    assert "does not fit the loss" in gradient
    trainer.objective.total = scaled(0.0)  # no gradient at all is a finding on every parameter, and not on the loss
    assert of_loss(trainer, [loss_cases.samples(False)], loss()) == []


class Kink(nn.Module):
    """A classifier with a ReLU that is about to close: (N, 3, H, W) -> logits."""

    def __init__(self, arch):
        super().__init__()
        self.fc, self.shift = nn.Linear(3, CLASSES), nn.Parameter(torch.zeros(1))

    def forward(self, image):
        return self.fc(image.mean((2, 3))) + torch.relu(self.shift) * torch.arange(CLASSES)


def test_a_relu_that_is_about_to_close_does_not_hide_a_right_gradient():
    plan = Plan((IMAGE, LABEL), (), lambda name: ParamGroup(1.0, 0.0), FP64)
    trainer = adapter.Trainer(Kink, None, classify.Settings(), plan, adapter.WORLD)
    weights = np.random.default_rng(0).standard_normal((CLASSES, 3))
    trainer.load_state_dict({"fc.weight": weights, "fc.bias": np.zeros(CLASSES), "shift": np.array([1e-10])})
    assert of_loss(trainer, [random_batch()], load_loss("classify", "cross_entropy")()) == []


def test_a_loss_in_16_bits_is_that_of_its_outputs():
    loss = load_loss("classify", "cross_entropy")(label_smoothing=0.1)
    mode = Mode("bf16", "O1", None, False)
    trainer = loss_cases.make(adapter, "cross_entropy", {"label_smoothing": 0.1}, False, mode)
    job = SimpleNamespace(loss=loss)
    assert opinions.is_judged(job, trainer)
    assert not opinions.is_judged(job, SimpleNamespace(mode=mode._replace(compile=True)))
    assert of_loss(trainer, [loss_cases.samples(False)], loss) == []
    trainer.objective.dtype = torch.bfloat16
    (value,) = of_loss(trainer, [loss_cases.samples(False)], loss)
    assert "the loss of the first update is" in value


@pytest.mark.parametrize("variant", margin_cases.VARIANTS)
def test_losses_of_faces_are_right(variant):
    task = margin_cases.VARIANTS[variant]
    trainer = margin_cases.make(adapter, FP64, task=task, accumulate=2)
    batches = margin_cases.split(margin_cases.random_batch(), 0, 6, 12)
    assert of_loss(trainer, batches, margin_cases.objective(**task)) == []
    wrong = margin_cases.objective(**{**task, "scale": 16.1})
    assert len(of_loss(trainer, batches, wrong)) == 2


# Recipes


OPTIMS = [
    {"schedule": "constant"},
    {"schedule": "step", "milestones": (1, 2.5), "gamma": 0.2, "warmup": Duration.parse("3 steps")},
    {"schedule": "exponential", "gamma": 0.9},
    {"schedule": "poly", "min_lr": 0.01, "warmup": Duration.parse("0.7 epochs"), "warmup_start": 0.1},
    {"schedule": "linear", "min_lr": 0.01, "min_lr_at": "last_step", "warmup_offset": 1, "base_batch": None},
    {"schedule": "cosine", "warmup": Duration.parse("5 steps"), "base_batch": 7},
    {"schedule": "one_cycle", "warmup": Duration.parse("2 steps")},
]


def run(optim, train, samples=90, ranks=1):
    clock = schedule.clock(train, samples, ranks)
    cfg = SimpleNamespace(optim=optim, train=train)
    lr = schedule.lr_schedule(optim, train, clock)
    return SimpleNamespace(clock=clock, lr=lr, train_set=range(samples), group=SimpleNamespace(size=ranks)), cfg


@pytest.mark.parametrize("optim", OPTIMS)
def test_learning_rates_are_those_of_the_keys(optim):
    for train in (Train(epochs=3, batch=4), Train(steps=40, batch=2, accumulate=3), Train(epochs=3, global_batch=8)):
        for ranks in (1, 2):
            assert recipes.rates(*run(load_settings("sgd")(**optim), train, ranks=ranks)) == []
    whole = {**optim, "warmup": Duration.parse("1 epochs"), "update": "epoch", "warmup_offset": None}
    assert recipes.rates(*run(load_settings("sgd")(**whole), Train(epochs=4, batch=4))) == []


def test_slips_of_a_schedule(monkeypatch):
    optim = load_settings("sgd")(schedule="one_cycle", warmup=Duration.parse("2 steps"))
    monkeypatch.setattr(schedules, "half_cosine", lambda start, end, progress: start + (end - start) * progress)
    (what,) = recipes.rates(*run(optim, Train(steps=20, batch=4)))
    assert what.startswith("the learning rate of update 4 is 0.0")
    job, cfg = run(optim, Train(epochs=2, batch=4, accumulate=2))
    (what,) = recipes.rates(SimpleNamespace(**{**vars(job), "clock": replace(job.clock, steps=45)}), cfg)
    assert what == "the run has 45 updates, and by its definition 23"


def test_milestones_far_into_a_run_are_compared(monkeypatch):
    optim = load_settings("sgd")(schedule="step", milestones=(2002, 2500), base_batch=None)
    job, cfg = run(optim, Train(steps=3000, batch=4))
    assert recipes.rates(job, cfg) == []
    late = SimpleNamespace(**{**vars(job), "lr": lambda step: job.lr(step - (step == 2002))})
    (what,) = recipes.rates(late, cfg)
    assert what.startswith("the learning rate of update 2003 is ")


def test_settings_of_an_update_are_those_of_the_keys():
    optim = load_settings("sgd")(clip_norm=1.0, loss_scale=1024.0)
    cfg = SimpleNamespace(optim=optim, train=Train(ema=0.9, ema_warmup=False, sync_bn=True, batch=4, steps=9), seed=3)
    plan = Plan((IMAGE,), (), lambda name: ParamGroup(1.0, 0.0), adapter.FP32_MODES[0], optimizer=optim, seed=3)
    plan = replace(plan, ema=Ema(0.9, False), clip_norm=1.0, loss_scale=1024.0, dynamic_loss_scale=False, sync_bn=True)
    arcface = replace(plan, fp32_modules=("fc", "features"))
    assert recipes.settings(SimpleNamespace(plan=plan, model="resnet"), cfg) == []
    assert recipes.settings(SimpleNamespace(plan=arcface, model="arcface"), cfg) == []
    assert len(recipes.settings(SimpleNamespace(plan=plan, model="arcface"), cfg)) == 1
    slips: list[dict] = [{"ema": Ema(0.9)}, {"ema": None}, {"clip_norm": None}, {"sync_bn": False}, {"seed": 0}]
    slips += [{"loss_scale": 65536.0}, {"dynamic_loss_scale": True}, {"clip_sharded": False}, {"eval_mixed": True}]
    slips += [{"fp16_allreduce": True}, {"shard_optimizer": True}, {"optimizer": load_settings("sgd")()}]
    for slip in slips:
        (what,) = recipes.settings(SimpleNamespace(plan=replace(plan, **slip), model="resnet"), cfg)
        assert f" with {next(iter(slip))} " in what


def slip_of(place):
    """The loss scale with one of its four numbers changed."""

    def slipped(ops, state, finite, dynamic):
        right = list(update.updated(ops, state, finite, dynamic))
        right[place] = {0: np.maximum(right[0], 1), 1: right[1] + 1, 2: 11, 3: state[3] + (not finite)}[place]
        return right

    return slipped


@pytest.mark.parametrize("place", range(4))
def test_loss_scales_of_any_size(place, monkeypatch):
    assert recipes.of_loss_scale() == []
    monkeypatch.setattr(recipes, "updated", slip_of(place))
    assert len(recipes.of_loss_scale()) == 1


def test_moving_averages_begin_with_the_weights():
    tensors = {"fc.weight": np.ones(3), "ema/fc.weight": np.ones(3)}
    trainer = SimpleNamespace(params=[SimpleNamespace(name="fc.weight")], state_dict=lambda: tensors)
    assert recipes.first_averages(SimpleNamespace(trainer=trainer)) == []
    tensors["ema/fc.weight"] = np.zeros(3)
    assert len(recipes.first_averages(SimpleNamespace(trainer=trainer))) == 1


def test_the_quality_of_long_and_short_embeddings(monkeypatch):
    loss = load_loss("face", "adaface")()
    assert recipes.of_quality(loss) == [] == recipes.of_quality(replace(loss, h=2.0, t_alpha=0.01))
    for name, value in (("max_norm", 1000.0), ("eps", 1e-2)):
        with monkeypatch.context() as patch:
            patch.setattr(type(loss), name, value)
            assert len(recipes.of_quality(loss)) == 1


def duplicated(rows, local_rows, rate, seed, rank, step):
    rng = np.random.default_rng(seed + 2 * step)
    return np.sort(rng.integers(0, local_rows, max(int(rate * local_rows), rows.size)))


def always_the_same(rows, local_rows, rate, seed, rank, step):
    return sharding.choose_active_rows(rows, local_rows, rate, 0, rank, 0)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_sampled_classes(rate, monkeypatch):
    assert recipes.of_sampling(rate) == []
    for slip in (duplicated, always_the_same):
        monkeypatch.setattr(recipes, "choose_active_rows", slip)
        assert len(recipes.of_sampling(rate)) == 1


MODELS = {
    "resnet": [{"decay": decay} for decay in ("weights", "all", "all_but_bn")],
    "deeplabv3plus": [{"decay": decay} for decay in ("weights", "all")],
    "arcface": [{"decay": decay, "variant": each} for decay in ("weights", "all") for each in ("plsc", "insightface")],
    "tsm": [{}, {"partial_bn": True}, {"fc_lr5": False}],
    "tsm_mobilenet_v2": [{}, {"fc_lr5": False}],
}
RULES = (GroupRule("fc.*", 0.1, 0.5), GroupRule(r".*bn1\..*", freeze=True))


@pytest.mark.parametrize("model, options", [(model, each) for model, several in MODELS.items() for each in several])
def test_parameter_groups_are_those_of_the_keys(model, options, monkeypatch):
    spec = load_spec(model)
    arch = replace(spec.Arch(**options), num_classes=5)
    optim = load_settings("sgd")(weight_decay=1e-3, groups=RULES)
    params = [
        SimpleNamespace(name=name, shape=shape, is_statistic=".running_" in name)
        for name, shape in spec.shapes(arch).items()
    ]
    plan = SimpleNamespace(param_group=param_groups(spec, arch, optim))
    job = SimpleNamespace(model=model, arch=arch, trainer=SimpleNamespace(params=params), plan=plan)
    assert recipes.groups(job, SimpleNamespace(optim=optim)) == []
    right = plan.param_group
    plan.param_group = lambda name: right(name)._replace(weight_decay=2e-3) if name == "conv1.weight" else right(name)
    wrong = recipes.groups(job, SimpleNamespace(optim=optim))
    assert ("weight decay 0.002, and by the recipe's keys" in "".join(wrong)) == any(
        p.name == "conv1.weight" for p in params
    )


class Counted:
    settings = SimpleNamespace(balance=0.0)

    def inventory(self, _):
        return SimpleNamespace(counts=lambda: np.array([4, 0, 6, 30]), class_name=str)


def test_classes_without_samples_have_no_share_in_balanced_weights(monkeypatch):
    monkeypatch.setattr(recipes, "balanced_class_weights", lambda shown, classes: np.ones(classes))
    given = load_loss("classify", "cross_entropy")(class_weights="balanced")
    (what,) = recipes.class_weights(SimpleNamespace(loss=given), SimpleNamespace(task=given))
    assert "where a class has no sample" in what


def test_class_weights_are_balanced():
    given = load_loss("classify", "cross_entropy")(class_weights="balanced")
    for balance in (0.0, 0.5):
        Counted.settings = SimpleNamespace(balance=balance)
        used, _ = dataset.resolve_class_weights(given, Counted(), 5)
        job = SimpleNamespace(loss=used, train_set=Counted(), arch=SimpleNamespace(num_classes=5))
        assert recipes.class_weights(job, SimpleNamespace(task=given)) == []
        shown = order.per_epoch(np.array([4, 0, 6, 30]), balance)
        assert np.allclose(recipe.shown([4, 0, 6, 30], balance), shown)
        counting_all = np.append(shown.sum() / (4 * np.maximum(shown, 1)), 1.0)
        job.loss = replace(used, class_weights=tuple(counting_all.tolist()))
        (what,) = recipes.class_weights(job, SimpleNamespace(task=given))
        assert what.startswith("the class weights are 2.5, 10, ") or balance


LEFT_IN_16_BITS = {
    "Classification": lambda self, output, target: self.loss.total(self.ops, output, target),
    "Segmentation": lambda self, outputs, labels: self.loss.total(self.ops, outputs[0], labels),
}
OBJECTIVE_OF = {"classify": "Classification", "multilabel": "Classification", "segment": "Segmentation"}


@pytest.mark.parametrize("task, name", [(task, name) for task in OBJECTIVE_OF for name in LOSSES[task]])
def test_losses_of_outputs_in_16_bits_are_in_fp32(task, name, monkeypatch):
    loss, objective = load_loss(task, name)(), OBJECTIVE_OF[task]
    assert recipes.of_precision(loss, 5) == []
    monkeypatch.setattr(getattr(objectives, objective), "total", LEFT_IN_16_BITS[objective])
    assert recipes.of_precision(loss, 5) == ["the loss of outputs in 16 bits is not computed in fp32"]


def test_a_slip_in_the_loss_of_auxiliary_outputs(monkeypatch):
    total = objectives.Segmentation.total

    def slip(self, outputs, labels):
        right = total(self, outputs[:1], labels)
        return right + sum(self.loss.aux_weight * self.aux_loss.total(self.ops, each, labels) for each in outputs[1:])

    monkeypatch.setattr(objectives.Segmentation, "total", slip)
    assert len(recipes.of_precision(load_loss("segment", "cross_entropy")(), 5)) == 1


# Metrics


@pytest.mark.parametrize("name", evaluations.METRICS)
def test_metrics_are_those_of_a_plain_count(name, monkeypatch):
    task = load_task(name)
    assert evaluations.of_metric(task, task.Settings(), GROUP) == []

    class Miscounting(task.Metric):
        def update(self, outputs, batch):
            super().update(outputs, {**batch, "valid": np.ones_like(batch["valid"])})

    (what,) = evaluations.of_metric(SimpleNamespace(Metric=Miscounting), task.Settings(), GROUP)
    assert "of predictions that are drawn at random is" in what


@pytest.mark.parametrize("name", ["classify", "multilabel"])
def test_scores_are_the_outputs_of_the_model(name):
    task = load_task(name)
    assert evaluations.of_output(task, task.Settings()) == []
    scores = SimpleNamespace(predict=lambda ops, arch, forward, images, size: 2 * forward(images[0]))
    assert len(evaluations.of_output(SimpleNamespace(output=lambda settings: scores), task.Settings())) == 1


@pytest.mark.parametrize("name", ["segment", "face"])
def test_predictions_are_those_of_the_definition(name, monkeypatch):
    task = load_task(name)
    assert evaluations.of_output(task, task.Settings()) == []
    for slip in ("flip", *(["resize", "add_window"] if name == "segment" else [])):
        with monkeypatch.context() as patch:
            patch.setattr(numpy_ops, slip, SLIPS[slip])
            assert len(evaluations.of_output(task, task.Settings())) == 1


def shifted(total, window, box, size, add=numpy_ops.add_window):
    return add(total, np.roll(window, 1, 3), box, size)


SLIPS = {
    "flip": lambda x, axis: x,
    "resize": lambda x, size, align_corners: resize_bilinear(x, size, not align_corners),
    "add_window": shifted,
}
