"""The overview and the table of ratios: every case has a cell, and no two columns have the same title."""

from tests.bench.report.runs import speed_events, training_events, write
from zoo.bench.report import formats, journals, tables
from zoo.bench.report.cases import group, ratios


def build(tmp_path, *several):
    """Return the tables of runs by name."""
    runs = [journals.read(write(tmp_path / str(number), events)) for number, events in enumerate(several)]
    results = group(runs)
    return {table.name: table.of("resnet") for table in tables.build(runs, results, ratios(results))}


def test_hosts_of_the_same_number_of_cards_have_rows_of_their_own(tmp_path):
    events = [speed_events(100.0), speed_events(700.0, cards=8), speed_events(600.0, cards=8, nodes=2)]
    assert formats.markdown(build(tmp_path, *events)["overview"]) == [
        "| nodes | cards | torch fp32 batch 128 |",
        "| --: | --: | --: |",
        "| 1 | 1 | 100.00 |",
        "| 1 | 8 | 700.00 |",
        "| 2 | 8 | 600.00 |",
    ]


def test_columns_name_what_would_be_the_same_without(tmp_path):
    training = training_events(model="resnet", recipe="resnet50_imagenet", protocol="imagenet/224-of-256", batch=128,
                               precision="fp32", compute="fp32", level=None)  # fmt: skip
    several = [
        speed_events(100.0),
        speed_events(90.0, accumulate=2),
        speed_events(80.0, hosts=[], device="cuda:0 (NVIDIA T4)", nodes=1),
        training,
        speed_events(70.0, framework="paddle"),
    ]
    overview = build(tmp_path, *several)["overview"]
    titles = [column.title for column in overview.columns if column.title not in ("nodes", "cards")]
    assert sorted(titles) == [
        "paddle fp32 batch 128",
        "torch fp32 batch 128, accumulate 1, NVIDIA T4, timed updates",
        "torch fp32 batch 128, accumulate 1, Tesla V100-SXM2-16GB, timed updates",
        "torch fp32 batch 128, accumulate 1, Tesla V100-SXM2-16GB, training time",
        "torch fp32 batch 128, accumulate 2, Tesla V100-SXM2-16GB, timed updates",
    ]
    values = [row[column.key] for row in overview.rows for column in overview.columns]
    assert {70.0, 80.0, 90.0, 100.0} < set(values)


def test_ratios_tell_how_they_were_counted_where_that_differs(tmp_path):
    common = {"model": "resnet", "protocol": "imagenet/224-of-256", "batch": 128}
    several = [
        *(speed_events(rate, framework=name, precision="amp") for name, rate in (("torch", 100.0), ("paddle", 80.0))),
        *(training_events(framework=name, **common) for name in ("torch", "paddle")),
    ]
    found = build(tmp_path, *several)["ratios"]
    assert sorted(row["counting"] for row in found.rows) == ["timed updates", "training time"]
    assert [column.title for column in found.columns][-1] == "counted"
    (alone,) = [table for table in build(tmp_path / "b", *several[:2]).values() if table.name == "ratios"]
    assert "counted" not in [column.title for column in alone.columns] and alone.rows[0]["counting"] == "timed updates"
