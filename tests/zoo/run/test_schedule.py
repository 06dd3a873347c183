"""When things are due, and the learning rate, against written-out numbers."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.config.schema import Duration, Optim, Train
from zoo.data.errors import UserError
from zoo.optim import load_settings
from zoo.run.schedule import BatchPlan, Clock, batch_plan, clock, lr_schedule

EPOCH, HALF = Duration.parse("1 epoch"), Duration.parse("0.5 epochs")
TSM = dict(lr=0.02, base_batch=128, schedule="step", milestones=(20, 40), gamma=0.1)

# samples not below the batch: an epoch takes at least one step
sizes = st.tuples(st.integers(1, 40), st.integers(0, 200)).map(lambda pair: (pair[0] + pair[1], pair[0]))


def due(run_clock, every):
    return [done for done in range(1, run_clock.steps + 1) if run_clock.due(every, done)]


@pytest.mark.parametrize("plan", [(1, 6, 4), (2, 3, 4), (3, 2, 4), (4, 2, 3), (24, 1, 1)])
def test_a_global_batch_is_shared_by_ranks_and_micro_batches(plan):
    """In the largest micro-batches of up to four samples."""
    assert batch_plan(Train(steps=1, batch=4, global_batch=24), plan[0]) == BatchPlan(*plan)


def test_without_a_base_batch_the_learning_rate_is_that_of_any_batch():
    assert [rates(Train(steps=1, batch=4), 100, size, lr=0.01, base_batch=None) for size in (1, 8)] == [[0.01]] * 2
    with_floor = dict(lr=0.01, base_batch=None, schedule="poly", power=1.0, min_lr=1e-4)
    assert rates(Train(steps=11, batch=4), 100, 8, **with_floor)[-1] == pytest.approx(1e-4 + 9.9e-3 / 11)


def optim_settings(schedule="step", **values):
    return load_settings("sgd")(schedule=schedule, **values)


def rates(train, samples, size=1, **optim):
    run_clock = clock(train, samples, size)
    lr = lr_schedule(optim_settings(**optim), train, run_clock)
    return [lr(step) for step in range(run_clock.steps)]


def test_exponential_and_linear_schedules():
    by_epoch = rates(Train(epochs=2, batch=50), 100, lr=0.2, base_batch=None, schedule="exponential", gamma=0.25)
    assert by_epoch == pytest.approx([0.2, 0.1, 0.05, 0.025])
    by_step = rates(Train(steps=3, batch=50), 100, lr=0.2, base_batch=None, schedule="exponential", gamma=0.5)
    assert by_step == pytest.approx([0.2, 0.1, 0.05])
    settings = dict(lr=0.4, base_batch=None, schedule="linear", min_lr=0.2, warmup=Duration.parse("2 steps"))
    linear = rates(Train(steps=6, batch=50), 100, **settings)
    assert linear == pytest.approx([0.0, 0.2, 0.4, 0.35, 0.3, 0.25])


def test_one_cycle():
    """Values of torch.optim.lr_scheduler.OneCycleLR in PyTorch 2.13.0, with these numbers and 10 steps."""
    settings = dict(lr=0.4, base_batch=None, schedule="one_cycle", div_factor=20, final_div_factor=100)
    expected = [0.02, 0.21, 0.4, 0.3802036766936936, 0.3247356113915609, 0.24458193469786726]
    expected += [0.1556180653021328, 0.0754643886084392, 0.019996323306306435, 0.0002]
    assert rates(Train(steps=10, batch=50), 100, **settings) == pytest.approx(expected, rel=1e-12)
    after_warmup = rates(Train(steps=12, batch=50), 100, **settings, warmup=Duration.parse("2 steps"))
    assert after_warmup == pytest.approx([0, 0.01, *expected], rel=1e-12)
    assert rates(Train(steps=2, batch=50), 100, **settings) == pytest.approx(
        [0.3247356113915609, 0.0002]
    )  # it only falls


@given(sizes, st.integers(1, 6))
@settings(max_examples=150)
def test_every_epoch_is_due_once_and_the_last_step_always(size, epochs):
    samples, batch = size
    run_clock = clock(Train(epochs=epochs, batch=batch), samples, 1)
    steps = due(run_clock, EPOCH)
    assert len(steps) == epochs and steps[-1] == run_clock.steps
    assert steps == [math.ceil(Fraction(epoch * samples, batch)) for epoch in range(1, epochs + 1)]
    assert [run_clock.epochs_done(EPOCH, done) for done in steps] == list(range(1, epochs + 1))


@given(
    sizes, st.integers(1, 4), st.sampled_from(["0.5 epochs", "0.3 epochs", "2 epochs", "1 step", "3 steps", "7 steps"])
)
@settings(max_examples=150)
def test_any_span_is_due_where_its_count_grows(size, epochs, text):
    samples, batch = size
    every, run_clock = Duration.parse(text), clock(Train(epochs=epochs, batch=batch), samples, 1)
    length = every.value * (Fraction(samples, batch) if every.unit == "epochs" else 1)  # in steps
    ends = {math.ceil(length * number) for number in range(1, math.floor(run_clock.steps / length) + 1)}
    assert due(run_clock, every) == sorted(ends | {run_clock.steps})
    assert run_clock.count(every, 0) == 0 and run_clock.count(every, run_clock.steps) == math.floor(
        run_clock.steps / length
    )


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 4), st.integers(1, 8), st.integers(1, 5))
def test_a_run_sees_its_epochs_and_not_a_step_more(samples, batch, accumulate, size, epochs):
    run_clock = clock(Train(epochs=epochs, batch=batch, accumulate=accumulate), samples, size)
    assert run_clock.global_batch == batch * accumulate * size
    assert (run_clock.steps - 1) * run_clock.global_batch < epochs * samples <= run_clock.steps * run_clock.global_batch


def test_steps_of_the_published_runs():
    """Kinetics-400 has 234619 clips in AI-Rank's copy: 1833 updates of 128 an epoch, the last of which overlaps."""
    run_clock = clock(Train(epochs=50, batch=16), 234619, 8)
    assert (run_clock.global_batch, run_clock.steps) == (128, 91649)
    assert due(run_clock, EPOCH)[:3] == [1833, 3666, 5499]
    assert run_clock.epochs(1833) == Fraction(1833 * 128, 234619) and run_clock.epochs_done(EPOCH, 1833) == 1


def test_length_in_steps():
    run_clock = clock(Train(steps=70, batch=10), 100, 1)
    assert run_clock.steps == 70 and len(due(run_clock, EPOCH)) == 7
    odd = clock(Train(steps=25, batch=10), 100, 1)
    assert due(odd, EPOCH) == [10, 20, 25]
    assert [odd.epochs_done(EPOCH, done) for done in (10, 20, 25)] == [1, 2, Fraction(5, 2)]
    assert odd.epochs_done(Duration.parse("5 steps"), 5) == Fraction(1, 2)


def test_a_batch_that_reaches_into_the_next_epoch_does_not_blur_the_count():
    run_clock = Clock(samples=100, global_batch=30, steps=20)
    assert due(run_clock, EPOCH) == [4, 7, 10, 14, 17, 20]
    assert [run_clock.epochs_done(EPOCH, done) for done in (4, 7, 10)] == [1, 2, 3]
    assert run_clock.epochs_done(EPOCH, 5) == Fraction(3, 2) and run_clock.epochs(4) == Fraction(6, 5)
    assert run_clock.epochs_done(HALF, 2) == Fraction(1, 2)


@pytest.mark.parametrize("size, peak", [(1, 0.0025), (8, 0.02), (16, 0.04), (32, 0.08)])
def test_the_rate_grows_with_the_global_batch(size, peak):
    train = Train(epochs=50, batch=16)
    run_clock = clock(train, 234619, size)
    lr = lr_schedule(Optim(**TSM), train, run_clock)
    assert lr(0) == pytest.approx(peak, rel=1e-12)
    accumulated = Train(epochs=50, batch=16, accumulate=size)
    assert lr_schedule(Optim(**TSM), accumulated, clock(accumulated, 234619, 1))(0) == lr(0)


def test_decay_begins_with_epoch_20_and_40_counted_from_0():
    got = rates(Train(epochs=50, batch=16), 160, 8, **TSM)  # 1.25 steps an epoch
    first = [math.ceil(Fraction(epoch * 160, 128)) for epoch in (20, 40)]
    assert first == [25, 50] and len(got) == 63
    assert got == pytest.approx([0.02] * 25 + [0.002] * 25 + [0.0002] * 13, rel=1e-12)


def test_milestones_in_steps_where_the_length_is_in_steps():
    got = rates(Train(steps=6, batch=10), 1000, lr=1.0, base_batch=10, milestones=(2, 5), gamma=0.5)
    assert got == [1, 1, 0.5, 0.5, 0.5, 0.25]
    warmup = dict(lr=1.0, base_batch=10, milestones=(3,), gamma=0.5, warmup=Duration.parse("2 steps"))
    assert rates(Train(steps=5, batch=10), 1000, **warmup) == [0, 0.5, 1, 0.5, 0.5]  # from the start of the run


def test_constant_and_no_milestones():
    assert rates(Train(steps=3, batch=4), 100, lr=0.5, base_batch=4, schedule="constant", milestones=(1,)) == [0.5] * 3
    assert rates(Train(steps=3, batch=4), 100, lr=0.5, base_batch=4, schedule="step") == [0.5] * 3


def test_cosine():
    got = rates(Train(steps=4, batch=8), 100, lr=2.0, base_batch=8, schedule="cosine")
    assert got == pytest.approx([2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5)])


def test_poly():
    got = rates(Train(steps=4, batch=8), 100, lr=2.0, base_batch=8, schedule="poly", power=2.0)
    assert got == pytest.approx([2, 2 * 0.75**2, 0.5, 2 * 0.25**2])
    got = rates(Train(steps=10, batch=8), 100, lr=1.0, base_batch=8, schedule="poly")
    assert got[5] == pytest.approx(0.5**0.9)


def test_poly_towards_a_floor():
    """mmsegmentation's recipe (0.x): towards 1e-4, which the last of 80,000 updates misses by 3.83e-7; and on 32 cards,
    floor and all eight times as high."""
    recipe = dict(lr=0.01, min_lr=1e-4, base_batch=8, schedule="poly", power=0.9)
    got = rates(Train(steps=80_000, batch=8), 2975, **recipe)
    assert got[0] == pytest.approx(0.01) and got[-1] == pytest.approx(1.00383e-4, rel=5e-6)
    assert got[40_000] == pytest.approx(0.0099 * 0.5**0.9 + 1e-4)
    wide = rates(Train(steps=80_000, batch=64), 2975, **recipe)
    assert wide[::7777] == pytest.approx([8 * value for value in got[::7777]])


def test_the_floor_at_the_last_step():
    """mmsegmentation's recipe (1.x) ends with exactly 1e-4."""
    recipe = dict(lr=0.01, min_lr=1e-4, base_batch=8, schedule="poly", power=0.9, min_lr_at="last_step")
    got = rates(Train(steps=80_000, batch=8), 2975, **recipe)
    assert got[0] == pytest.approx(0.01) and got[-1] == pytest.approx(1e-4, rel=1e-12) and got[-2] > 1e-4
    assert got[40_000] == pytest.approx(0.0099 * (1 - 40_000 / 79_999) ** 0.9 + 1e-4)
    assert rates(Train(steps=5, batch=8), 100, lr=2.0, base_batch=8, schedule="cosine", min_lr_at="last_step") == (
        pytest.approx([2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5), 0])
    )
    assert rates(Train(steps=1, batch=8), 100, lr=2.0, base_batch=8, schedule="poly", min_lr_at="last_step") == [2.0]


def test_a_learning_rate_that_changes_once_per_epoch():
    """Epochs of 2.5 steps: a step belongs to the epoch that it begins in."""
    epochs = dict(lr=1.0, base_batch=40, update="epoch")
    got = rates(Train(epochs=4, batch=40), 100, schedule="cosine", **epochs)
    values = [1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125)]
    assert got == pytest.approx([values[i] for i in (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)])
    got = rates(Train(epochs=4, batch=40), 100, schedule="step", milestones=(1.5, 3), gamma=0.5, **epochs)
    assert got == [1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    warmup = dict(warmup=Duration.parse("2 epochs"), warmup_start=0.5)
    got = rates(Train(epochs=4, batch=40), 100, schedule="constant", **warmup, **epochs)
    assert got == [0.5] * 3 + [0.75] * 2 + [1] * 5


def test_a_warm_up_by_epochs_has_no_epoch_without_a_learning_rate():
    """As in NVIDIA's ResNet-50, (epoch + 1) / 4; with a first value as timm's warmup_lr_init and PyTorch's LinearLR."""
    epochs = dict(lr=1.0, base_batch=50, update="epoch", schedule="constant", warmup=Duration.parse("4 epochs"))
    train = Train(epochs=6, batch=50)
    assert (
        rates(train, 100, **epochs)[::2]
        == rates(train, 100, **epochs, warmup_offset=1)[::2]
        == [*[0.25, 0.5, 0.75, 1, 1, 1]]
    )
    with_start = rates(train, 100, **epochs, warmup_start=0.1)
    assert with_start[::2] == with_start[1::2] == pytest.approx([0.1, 0.325, 0.55, 0.775, 1, 1])
    assert rates(train, 100, **{**epochs, "update": "step"})[:3] == [0, 0.125, 0.25]
    with pytest.raises(UserError, match="rate of 0 throughout the first epoch; give -o optim.warmup_offset=1"):
        rates(train, 100, **epochs, warmup_offset=0)


def test_a_warm_up_that_is_one_step_ahead():
    ahead = dict(lr=1.0, base_batch=8, warmup=Duration.parse("4 steps"), warmup_offset=1)
    assert rates(Train(steps=6, batch=8), 100, schedule="constant", **ahead) == [0.25, 0.5, 0.75, 1, 1, 1]
    got = rates(Train(steps=6, batch=8), 100, schedule="constant", warmup_start=0.2, **ahead)
    assert got == pytest.approx([0.4, 0.6, 0.8, 1, 1, 1])


@pytest.mark.parametrize(
    "train, optim, message",
    [
        (dict(steps=10), {}, "optim.update: epoch needs the length of the run in epochs"),
        (dict(epochs=4), dict(warmup="5 steps"), "optim.warmup: 5 steps are no whole epochs"),
        (dict(epochs=4), dict(warmup="1.5 epochs"), "optim.warmup: 1.5 epochs are no whole epochs"),
        (dict(epochs=4), dict(warmup="4 epochs"), "4 epochs of a run of 4; shorten it.* or raise train.epochs"),
    ],
)
def test_epochs_that_a_learning_rate_per_epoch_cannot_use(train, optim, message):
    warmup = Duration.parse(optim.get("warmup", "0 steps"))
    with pytest.raises(UserError, match=message):
        rates(Train(**train), 97, update="epoch", warmup=warmup)


@pytest.mark.parametrize("wrong", [dict(min_lr=0.2), dict(min_lr=0.01, schedule="step"), dict(min_lr=-1.0)])
def test_a_floor_above_the_peak_or_of_another_schedule(wrong):
    with pytest.raises(ValueError, match="^min_lr:"):
        optim_settings(**{"lr": 0.1, "schedule": "cosine", **wrong})


def test_warm_up_is_linear_up_to_the_schedule():
    got = rates(
        Train(steps=8, batch=8),
        100,
        lr=1.0,
        base_batch=8,
        schedule="constant",
        warmup=Duration(Fraction(4), "steps"),
        warmup_start=0.2,
    )
    assert got == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1])
    plain = rates(Train(steps=6, batch=8), 100, lr=1.0, base_batch=8, schedule="cosine")
    warm = rates(
        Train(steps=8, batch=8), 100, lr=1.0, base_batch=8, schedule="cosine", warmup=Duration(Fraction(2), "steps")
    )
    assert warm[2:] == pytest.approx(plain) and warm[:2] == pytest.approx([0, 0.5])


def test_warm_up_in_epochs_scales_with_the_batch():
    train = Train(epochs=4, batch=25)
    got = rates(train, 100, lr=1.0, base_batch=25, schedule="constant", warmup=Duration(Fraction(1), "epochs"))
    assert got == pytest.approx([0, 0.25, 0.5, 0.75] + [1] * 12)
    got = rates(train, 100, 2, lr=1.0, base_batch=25, schedule="constant", warmup=Duration(Fraction(1), "epochs"))
    assert got == pytest.approx([0, 1] + [2] * 6)
    train = Train(epochs=2, batch=40)  # 2.5 steps an epoch
    got = rates(train, 100, lr=1.0, base_batch=40, schedule="constant", warmup=Duration(Fraction(1), "epochs"))
    assert got == pytest.approx([0, 1 / 3, 2 / 3, 1, 1])


@given(
    st.sampled_from(["constant", "step", "cosine", "poly"]),
    st.integers(1, 60),
    st.integers(1, 30),
    st.integers(0, 8),
    st.sampled_from(["end", "last_step"]),
    st.integers(0, 1),
)
@settings(max_examples=100)
def test_no_rate_is_negative_or_above_the_peak(schedule, steps, batch, warmup, min_lr_at, warmup_offset):
    warmup = min(warmup, steps - 1)
    got = rates(
        Train(steps=steps, batch=batch),
        97,
        lr=0.1,
        base_batch=batch,
        schedule=schedule,
        milestones=(3, 9),
        warmup=Duration(Fraction(warmup), "steps"),
        min_lr_at=min_lr_at,
        warmup_offset=warmup_offset,
    )
    assert all(0 <= value <= 0.1 * (1 + 1e-12) for value in got)


def test_a_warm_up_as_long_as_the_run_is_refused():
    with pytest.raises(UserError, match="10 steps, but the run has only 10; shorten it.* or raise train.epochs"):
        rates(Train(steps=10), 97, warmup=Duration(Fraction(10), "steps"))


@pytest.mark.parametrize(
    "text, value, unit",
    [
        ("2 epochs", 2, "epochs"),
        ("1 epoch", 1, "epochs"),
        ("0.25 epochs", 0.25, "epochs"),
        ("500 steps", 500, "steps"),
        (500, 500, "steps"),
        (" 3  step ", 3, "steps"),
    ],
)
def test_spans(text, value, unit):
    span = Duration.parse(text)
    assert span == Duration(Fraction(value), unit) and Duration.parse(str(span)) == span
