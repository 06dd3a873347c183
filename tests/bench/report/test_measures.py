"""Values of a run, from journals whose values are computed by hand."""

import pytest

from tests.bench.report.runs import eval_event, speed_events, train_event, training_events
from tests.helpers.journals import full_begin, full_load
from zoo.bench.report import measures
from zoo.bench.report.measures import INTERVALS, SPEED, avg_ips, measure


def begin(**values):
    return [full_load(), full_begin(batch=10, **values)]


def test_a_speed_run_has_the_throughput_that_it_counted():
    values, counting = measure(speed_events(369.81, step_ms=[100.0] * 90 + [200.0] * 10), None, 0)
    assert counting == SPEED and values.samples_per_s == 369.81 and values.data_wait == 0.25
    assert (values.steps.p50, values.steps.p90, values.steps.p99) == (100.0, pytest.approx(110.0), 200.0)
    assert len(values.steps.every) == 100 and values.evaluations == 0 and values.best is None


def test_throughput_of_training_leaves_out_the_first_interval_and_weighs_by_samples():
    """100 samples in 10 s, then 300 in 3 s: (100 + 300) / 13; the slow first interval does not count."""
    events = [*begin(), train_event(5, 110, 1.0), train_event(15, 120, 10.0), train_event(45, 124, 100.0)]
    values, counting = measure(events, None, 0)
    assert counting == INTERVALS and values.samples_per_s == pytest.approx(400 / 13)


def test_a_single_interval_counts():
    assert measure([*begin(), train_event(5, 110, 7.0)], None, 0)[0].samples_per_s == pytest.approx(7.0)


def test_after_a_resume_the_first_interval_is_left_out_and_the_new_batch_counts():
    """Second process: 20 samples an update. Its interval from step 30 to 40 has 200 samples at 50/s, so 4 s."""
    events = [
        *begin(),
        train_event(10, 110, 5.0),
        train_event(20, 111, 100.0),  # 100 samples in 1 s
        {"event": "resume", "time": 150, "step": 20, "path": "x", "global_batch": 20},
        train_event(30, 160, 1.0),
        train_event(40, 164, 50.0),
    ]
    assert measure(events, None, 0)[0].samples_per_s == pytest.approx((100 + 200) / (1 + 4))


def test_quantiles_are_medians_of_the_intervals_weighted_by_updates():
    def interval(step, p50):
        return train_event(step, 100 + step, step_ms={"p50": p50, "p90": p50 + 1, "p99": p50 + 2, "count": 1})

    events = [
        *begin(),
        interval(10, 999.0),
        interval(20, 5.0),
        interval(30, 7.0),
        interval(60, 9.0),
    ]  # 10, 10, 30 steps
    steps = measure(events, None, 0)[0].steps
    assert (steps.p50, steps.p90, steps.p99, steps.every) == (9.0, 10.0, 11.0, ())


def test_energy_memory_and_waiting():
    """Intervals of 100 samples at 100/s and 50/s, so 1 s and 2 s; energies of 200 J and 500 J."""
    power = {"energy_j": 200.0, "watts": 200.0}
    events = [
        *begin(),
        train_event(10, 101, 1.0),
        train_event(20, 102, 100.0, power=power, data_wait_fraction=0.3, device_memory_bytes=5),
        train_event(30, 104, 50.0, power={"energy_j": 500.0, "watts": 250.0}, data_wait_fraction=0.0),
    ]
    values = measure(events, None, 0)[0]
    assert values.joules_per_sample == pytest.approx(700 / 200)
    assert values.watts == pytest.approx((200 * 1 + 250 * 2) / 3) and values.data_wait == pytest.approx(0.1)
    assert (values.host_memory, values.device_memory) == (3 << 30, 2 << 30)


def test_time2train_and_accuracy():
    """Evaluations at 20, 40 and 60 s with 0.5, 0.72 and 0.7; the end at 60.5 s."""
    values = measure(training_events(), 0.711, 0)[0]
    assert (values.best, values.best_epoch, values.evaluations) == (0.72, 2, 3)
    assert (values.time_to_target, values.target_epoch, values.total_time) == (40.0, 2, 60.5)
    missed = measure(training_events(), 0.73, 0)[0]
    assert missed.time_to_target is None and missed.target_epoch is None and missed.best == 0.72
    assert measure(training_events(), 0.72, 0)[0].time_to_target == 40.0  # at the target is enough


@pytest.mark.parametrize(
    "warmup, expected", [(0, 3000 / 60.5), (1, 2000 / 40.5), (1.5, 2000 / 40.5), (2, 1000 / 20.5), (3, None)]
)
def test_avg_ips_by_the_definition_of_ai_rank(warmup, expected):
    """3 epochs of 1000 samples in 60.5 s; the warm-up ends with the last evaluation in it."""
    assert avg_ips(training_events(), warmup) == (expected and pytest.approx(expected))


def test_a_run_without_an_end_has_no_avg_ips():
    assert avg_ips(training_events()[:-1], 0) is None


def test_points_over_samples_and_time():
    events = [
        *begin(),
        train_event(10, 105.0, loss=3.0),
        train_event(20, 107.0, loss=float("nan")),
        eval_event(1, 110.0, 0.4),
    ]
    assert measures.losses(events) == [(100.0, 5.0, 3.0)]
    assert measures.metrics(events) == [(1000.0, 10.0, 0.4)]
    assert measures.losses(events[2:])[0] == (None, None, 3.0)  # without a beginning


def test_progress():
    assert measures.progress([]) == "it has not begun"
    assert measures.progress(training_events()) == "step 300 of 750"
