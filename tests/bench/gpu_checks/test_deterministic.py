"""Two runs are compared to the last bit; the command of a step asks for determinism."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from zoo.bench.gpu_checks import deterministic, models, plan
from zoo.bench.gpu_checks.resume import WEIGHTS
from zoo.run import cli


def write_run(folder, losses, weight):
    (folder / WEIGHTS).parent.mkdir(parents=True)
    save_file({"fc.weight": np.array([1.0, weight], np.float32)}, folder / WEIGHTS)
    events = [{"event": "train", "time": 0.0, "step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


@pytest.mark.parametrize(
    "losses, weight, equal_losses, equal_weights, code",
    [
        ([2.0, 1.0], 0.5, True, True, 0),
        ([2.0, np.nextafter(1.0, 2.0)], 0.5, False, True, 1),
        ([2.0, 1.0], np.nextafter(np.float32(0.5), np.float32(1.0)), True, False, 1),
    ],
)
def test_a_bit_makes_a_difference(tmp_path, monkeypatch, losses, weight, equal_losses, equal_weights, code):
    runs = iter((([2.0, 1.0], 0.5), (losses, weight)))
    commands = []

    def train(command):
        commands.append(command)
        write_run(tmp_path / "runs" / ("first", "second")[len(commands) - 1], *next(runs))

    monkeypatch.setattr(deterministic, "train", train)
    paths = ["--folder", str(tmp_path / "runs"), "--json", str(tmp_path / "values.json")]
    assert deterministic.main([*paths, *models.tiny(models.MODELS[0], "torch")]) == code
    found = json.loads((tmp_path / "values.json").read_text())
    assert (found["equal_losses"], found["equal_weights"]) == (equal_losses, equal_weights)
    assert commands[0][:-1] == commands[1][:-1] and commands[0][-1] != commands[1][-1]
    config = cli.read(cli.parse(commands[0][2:])).config
    assert config.train.deterministic and config.train.cudnn_benchmark is None


def test_every_model_is_run_in_16_bits_on_a_device():
    for dry, precision, count in ((False, "amp", 4), (True, "fp32", 1)):
        setting = plan.Setting("/nowhere", "cuda", ("torch",), dry)._replace(out=plan.Path("/nowhere"))
        steps = [step for step in plan.steps(setting) if step.group == plan.DETERMINISTIC]
        assert len(steps) == count and all(f"train.precision={precision}" in step.words for step in steps)
