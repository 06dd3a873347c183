"""The check against published tables: its errors, and that nothing held out is used."""

import math

import numpy as np
import pytest

from zoo.bench.scale import model, published
from zoo.bench.scale.calibration import Messages
from zoo.bench.scale.published import Table

REPORT, REPORTS, INDEPENDENT = published.validate(), published.tables("report"), published.tables("independent")


def without_largest(table):
    """Return a table whose row of 32 cards is wrong."""
    return table._replace(rows={**table.rows, 32: 1.0})


def test_the_largest_rows_are_predicted():
    assert {row.name: round(row.error, 3) for row in REPORT["held_out"]} == {
        "TSM Paddle amp": 0.005,
        "DeepLabV3+ PyTorch fp32": 0.037,
        "DeepLabV3+ PyTorch fp16": 0.018,
        "ResNet50 MindSpore fp32": 0.016,
        "ResNet50 MindSpore fp16": -0.060,
        "ArcFace Paddle fp32": 0.059,
    }
    found = published.errors(REPORT["held_out"])
    assert (round(found.largest, 3), round(found.mean, 3)) == (0.060, 0.033)
    assert REPORT["parameters"] == 13


def test_rows_of_several_hosts_are_predicted_from_one():
    found = published.errors(REPORT["one_host"])
    assert (found.rows, round(found.largest, 3), round(found.mean, 3)) == (11, 0.320, 0.080)


@pytest.mark.parametrize("table", REPORTS, ids=lambda table: table.name)
def test_the_held_out_row_has_no_influence(table):
    constant = REPORT["seconds_per_mb"]
    predicted = published.predict_largest(table, constant).predicted
    assert published.predict_largest(without_largest(table), constant).predicted == predicted


def test_the_reports_are_not_among_the_tables_that_were_fitted():
    reports = {speed for table in REPORTS for speed in table.rows.values()}
    assert not reports & {speed for table in INDEPENDENT for speed in table.rows.values()}
    assert len(INDEPENDENT) == len({tuple(table.rows.values()) for table in INDEPENDENT}) == 89


FORMS = {
    "bytes that a host sends": model.share_sent,
    "rounds of messages": math.log2,
    "all hosts in a ring": lambda hosts: float(hosts - 1),
    "once, as soon as there are two hosts": lambda hosts: float(hosts > 1),
}


def errors_of(growth):
    return published.errors(published.predict_by_growth(table, growth) for table in INDEPENDENT)


def test_the_form_of_growth_is_the_best_of_those_compared():
    """Of 32 cards from 8 and 16, in tables that are none of the reports."""
    means = {name: round(errors_of(growth).mean, 3) for name, growth in FORMS.items()}
    assert list(means.values()) == [0.034, 0.064, 0.146, 0.062]
    assert model.growth(4, Messages(0)) / model.growth(2, Messages(0)) == 1.5  # the bytes that a host sends


def left_out():
    """Predict 16 cards of each README from one host, with the constant of all other READMEs."""
    for name in {table.name for table in INDEPENDENT}:
        constant = published.seconds_per_mb([table for table in INDEPENDENT if table.name != name])
        for table in (table for table in INDEPENDENT if table.name == name):
            yield from (row for row in published.predict_from_host(table, constant) if row.cards == 16)


def test_the_errors_of_the_model_are_those_of_the_independent_tables():
    ring = [published.row_of(table, 8, published.continue_ring(table)) for table in INDEPENDENT if 4 in table.rows]
    for rows, deviation in ((ring, model.PER_CARD_DOUBLING), (left_out(), model.FIRST_HOSTS)):
        assert published.errors(rows).percentile_68 == pytest.approx(deviation, rel=0.1)
    assert errors_of(model.share_sent).percentile_68 == pytest.approx(model.PER_HOST_DOUBLING, rel=0.1)


def test_nine_in_ten_held_out_rows_lie_within_the_error_bars_of_the_model():
    """1.645 standard deviations: from 5 % to 95 % of a normal distribution."""

    def inside(rows, deviation):
        return sum(abs(np.log(row.predicted / row.published)) <= 1.645 * deviation(row.cards) for row in rows)

    first, later = model.FIRST_HOSTS, model.PER_HOST_DOUBLING
    assert inside(REPORT["held_out"], lambda _: later) == 5  # of 6
    assert inside(REPORT["one_host"], lambda cards: np.hypot(first, later * (cards == 32))) == 10  # of 11


def test_a_table_made_of_the_model_is_predicted_exactly():
    seconds = {cards: 0.3 + 0.02 * growth for cards, growth in ((8, 0), (16, 1), (32, 1.5))}
    table = Table("", 64, 100.0, False, {1: 200.0, **{n: n * 64 / time for n, time in seconds.items()}})
    assert published.predict_largest(table, 0.0).error == pytest.approx(0)
    assert published.seconds_per_mb([table]) == pytest.approx(0.02 / 100)
    assert [row.error for row in published.predict_from_host(table, 0.02 / 100)] == pytest.approx([0, 0])
