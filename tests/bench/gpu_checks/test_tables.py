"""Tables of results of every group, and the page between the marks."""

from pathlib import Path

import pytest

from zoo.bench.gpu_checks import plan, tables
from zoo.bench.gpu_checks.plan import Setting
from zoo.data.errors import UserError

STEPS = plan.steps(Setting(Path("/nowhere"), "cuda", ("torch",), False))
PARITY = dict.fromkeys(("loss", "prediction", "weights", "statistics", "gradient", "change"), 1e-6)
FINDING = {"section": "GPU", "topic": "driver", "state": "FAIL", "text": "not found", "remedy": "install it"}
VALUES = {  # group -> values of a step, and cells of its row
    plan.DOCTOR: ({"can_train": True, "findings": [FINDING]}, ["GPU", "driver", "FAIL", "not found"]),
    plan.SPEED: (
        {
            "device": "NVIDIA X",
            "version": "2.13.0",
            "batch": 256,
            "samples_per_s": 2512.25,
            "ms": 101.5,
            "mfu": 0.412,
            "peak": "fp16",
            "device_mib": 20000.4,
            "host_mib": None,
            "data_wait": 0.001,
            "settings": {"tf32": False},
        },
        ["AMP", "synthetic", "2,512.2", "101.50", "41.2%", "fp16", "20,000", "-", "0.1%"],
    ),
    plan.PARITY: ({**PARITY, "compute": "fp64", "beyond": ["loss"]}, ["tiny", "fp64", "1.0e-06", "no"]),
    plan.DEMOS: (
        {"first_loss": 2.3, "last_loss": 0.1, "metric": "top1", "best": 0.98125, "target": 0.95, "seconds": 61.2},
        ["2.300", "0.100", "top1", "0.9812", "0.95", "61"],
    ),
    plan.RESUME: (
        {"steps": 12, "killed_after_step": 4, "largest_difference": 0.0, "equal_losses": True, "equal_weights": False},
        ["12", "4", "0.0e+00", "yes", "no"],
    ),
    plan.COMPARE: ({"agree": True, "steps": 20, "largest_difference": 1.2e-6}, ["20", "yes", "1.2e-06"]),
    plan.TOGETHER: ({"alone": 100.0, "together": [60.0, 70.0], "gain": 1.3}, ["100.0", "60.0", "70.0", "1.30"]),
    plan.PEERS: (
        {"batch": 16, "peer": "mit-han-lab", "ours_ms": 80.0, "peer_ms": 100.0, "ratio": 0.8, "compute": "fp16"},
        ["AMP", "16", "mit-han-lab", "80.00", "100.00", "0.80"],
    ),
    plan.PROFILE: (
        {"ms": 4.0, "operators": [{"name": "a|b", "ms": 3.0, "calls": 2.0}, {"name": "c", "ms": 1.0, "calls": 1.0}]},
        ["a\\|b", "3.000", "75.0%", "2.0"],
    ),
}


def result(step, values, state="done", **fields):
    return {"state": state, "facts": dict(step.facts), "values": values, **fields}


@pytest.mark.parametrize("group", VALUES)
def test_a_result_is_a_row(group):
    step = next(step for step in STEPS if step.group == group)
    values, cells = VALUES[group]
    text = tables.lines(STEPS, {step.name: result(step, values)})
    assert f"### {plan.GROUPS[group]}" in text
    row = next(line for line in text if all(f" {cell} |" in line for cell in cells))
    first = {plan.DOCTOR: "GPU", plan.RESUME: "torch"}.get(group, "resnet")
    assert row.startswith(f"| {first} |")


def test_devices_and_versions_are_named():
    step = next(step for step in STEPS if step.group == plan.SPEED)
    assert tables.lines(STEPS, {step.name: result(step, VALUES[plan.SPEED][0])})[0] == "- torch 2.13.0 on NVIDIA X"


def test_what_failed_was_skipped_or_is_left_is_named():
    failed, skipped = STEPS[1], STEPS[2]
    text = "\n".join(
        tables.lines(
            STEPS[:4],
            {
                failed.name: {"state": "failed", "reason": "out of\nmemory", "facts": {}},
                skipped.name: {"state": "skipped", "reason": "not installed: cv2", "facts": {}},
            },
        )
    )
    assert f"### Failed\n\n- {failed.name}: out of memory" in text
    assert f"### Skipped\n\n- {skipped.name}: not installed: cv2" in text
    assert f"### Not run yet\n\n{STEPS[0].name}, {STEPS[3].name}" in text


def test_the_page_keeps_what_is_outside_the_marks(tmp_path):
    page = tmp_path / "gpu.md"
    page.write_text(f"# A\n\n{tables.BEGIN}\nold\n{tables.END}\n\n# B\n")
    tables.update(page, ["", "new", "lines"])
    assert page.read_text() == f"# A\n\n{tables.BEGIN}\nnew\nlines\n{tables.END}\n\n# B\n"
    page.write_text("# A\n")
    with pytest.raises(UserError, match="lacks the lines"):
        tables.update(page, ["new"])
    with pytest.raises(UserError, match="No such file"):
        tables.update(tmp_path / "none.md", ["new"])
