"""Recorded forward passes, one body over all frameworks (test_recording.py)."""

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import (
    assert_equal,
    copied_state,
    make,
    make_model,
    make_tsm,
    random_clips,
    random_inputs,
    update,
)
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode

TINY_MODULES = ["", "conv", "bn", "fc"]


def record(backend, trainer, batch, training, kept=None):
    keep = {}.__setitem__ if kept is None else kept.__setitem__
    return load_backend(backend.FRAMEWORK).record_forward(trainer, trainer.to_device(batch), training, "pass", keep)


def by_name(calls):
    assert len({call.name for call in calls}) == len(calls)
    return {call.name: call for call in calls}


def case_recording_changes_nothing(backend):
    """Neither the tensors nor the next update, whatever pass was recorded last."""
    recorded, other = (make(backend, dropout=True, clip_norm=0.2) for _ in range(2))
    for seed, training in enumerate((True, False, True)):
        before = copied_state(recorded)
        for kind in (not training, training):
            record(backend, recorded, random_batch(seed=9), kind)
        assert_equal(recorded.state_dict(), before)
        numbers = [update(trainer, random_batch(seed=seed), step=seed) for trainer in (recorded, other)]
        assert numbers[0] == numbers[1]
        assert_equal(recorded.state_dict(), copied_state(other))
    images = {"image": random_batch(seed=5)["image"]}
    record(backend, recorded, random_batch(seed=9), True)
    predictions = [trainer.predict(trainer.to_device(images)) for trainer in (recorded, other)]
    np.testing.assert_array_equal(*predictions)


def case_a_pass_that_fails_leaves_no_hooks(backend):
    """Of a batch without its dropout masks."""
    recorded, other = (make(backend, dropout=True) for _ in range(2))
    incomplete = recorded.to_device(random_batch())
    del incomplete["dropout"]
    kept = {}
    with pytest.raises(KeyError):
        load_backend(backend.FRAMEWORK).record_forward(recorded, incomplete, True, "pass", kept.__setitem__)
    kept.clear()
    assert update(recorded, random_batch()) == update(other, random_batch())
    assert kept == {}


def case_checkpointed_modules_are_recorded_as_others(backend):
    if backend.FRAMEWORK == "mindspore":
        return  # which has checkpoints in compiled graphs alone, where no module is recorded
    records, tensors = [], []
    for names in ((), ("layer1.0", "layer3.1")):
        trainer, _ = make_tsm(backend, checkpointed_modules=names)
        tensors.append({})
        records.append(record(backend, trainer, random_clips(), True, tensors[-1]))
    assert_equal(*tensors)
    first, second = ([(call.name, call.kind, call.files, call.call_sites) for call in each.calls] for each in records)
    assert first == second


def check_modules(backend, mode, rtol):
    trainer, batch = make(backend, mode, dropout=True), random_batch()
    for training in (True, False):
        expected = tiny.Forward(tiny.initial_state(), batch, frozen=not training, dropout=training)
        kept = {}
        result = record(backend, trainer, batch, training, kept)
        calls = by_name(result.calls)
        convolved = expected.standardized / tiny.column(expected.scale) + tiny.column(
            expected.mean if training else expected.state["bn.running_mean"]
        )
        pixels = tiny.normalize(batch["image"])
        tensors = {
            "": (pixels, expected.logits),
            "conv": (pixels, convolved),
            "bn": (convolved, expected.normalized),
            "fc": (expected.features, expected.logits),
        }
        assert calls.keys() == tensors.keys()
        for name, (inputs, outputs) in tensors.items():
            assert calls[name].outputs == 1
            for part, value in (("in0", inputs), ("out0", outputs)):
                actual = kept[f"{calls[name].key}/{part}"]
                assert actual.dtype == np.float64
                np.testing.assert_allclose(actual, value, rtol=rtol, atol=rtol * np.abs(value).max(), err_msg=name)
        assert calls[""].inputs == (2 if training else 1)
        if training:
            np.testing.assert_array_equal(kept["pass/0/in1"], batch["dropout"])
        assert all(calls[name].inputs == 1 for name in ("conv", "bn", "fc"))
        (output,) = result.outputs
        np.testing.assert_array_equal(output, kept["pass/0/out0"])


def case_modules_equal_numpy_in_fp32(backend):
    for mode in backend.FP32_MODES:
        check_modules(backend, mode, 5e-6)


def case_modules_equal_numpy_in_fp64(backend):
    check_modules(backend, backend.WORLD.resolve_mode(Mode("fp64")), 1e-12)


def case_calls_are_in_order_and_their_spans_nest(backend):
    trainer = make(backend, dropout=True)
    for training in (True, False):
        calls = record(backend, trainer, random_batch(), training).calls
        assert [call.name for call in calls] == TINY_MODULES
        assert [call.span for call in calls] == [(1, 8), (2, 3), (4, 5), (6, 7)]


def case_spans_of_a_deep_model_nest(backend):
    trainer, _ = make_tsm(backend, dropout=0.5)
    calls = record(backend, trainer, random_clips(), True).calls
    ticks = sorted(tick for call in calls for tick in call.span)
    assert ticks == list(range(1, 2 * len(calls) + 1))
    assert [call.span[0] for call in calls] == sorted(call.span[0] for call in calls)
    spans = by_name(calls)
    assert list(spans)[:2] == ["", "conv1"] and list(spans)[-1] == "fc"
    inside = {name: name.rpartition(".")[0] for name in spans if name.rpartition(".")[0] in spans and name}
    assert {"layer2.0.downsample.0", "layer4.0.downsample.1", "fc"} <= inside.keys()
    for name, parent in inside.items():
        (first, last), (enter, leave) = spans[parent].span, spans[name].span
        assert first < enter < leave < last, (parent, name)


def case_a_module_that_also_gets_a_number_is_recorded(backend):
    """A non-local block gets the number of segments; it begins as the identity."""
    options, kept = {"depth": 50, "width": 8, "non_local": True}, {}
    trainer, _ = make_model(backend, "tsm", options, (2, 32, 32, 3), 5)
    calls = record(backend, trainer, random_inputs(trainer, 5), True, kept).calls
    block = next(call for call in calls if call.name == "layer2.0.nl")
    assert (block.inputs, block.outputs) == (1, 1)
    np.testing.assert_array_equal(kept[f"{block.key}/in0"], kept[f"{block.key}/out0"])


def case_files_are_those_of_the_model(backend):
    """First the model's; a trainer may replace normalizations and convolutions by its own."""
    trainer, _ = make_tsm(backend)
    models = {f"zoo/models/{model}/{backend.FRAMEWORK}.py" for model in ("tsm", "resnet")}
    for call in record(backend, trainer, random_clips(), True).calls:
        assert call.files and call.files[0] in models, call.name
        own = [file for file in call.files if file not in models]
        assert not own or any(part in call.name for part in ("bn", "conv", "downsample")), call.name
        assert all(file.startswith(f"zoo/trainer/{backend.FRAMEWORK}/") for file in own), call.name


def case_call_sites_are_the_lines_of_the_calls(backend):
    """Every line calls something by the name of the module, unless that is an index in a sequence."""
    trainer, _ = make_tsm(backend)
    checked = 0
    for call in record(backend, trainer, random_clips(), True).calls:
        attribute = call.name.rpartition(".")[2]
        files = [site.rpartition(":")[0] for site in call.call_sites]
        assert len(set(files)) == len(files)
        assert all(file.startswith("zoo/models/") for file in files), call
        if attribute and not attribute.isdigit() and call.kind not in ("Sequential", "SequentialCell"):
            path, _, number = call.call_sites[0].rpartition(":")
            line = (ROOT / path).read_text().splitlines()[int(number) - 1]
            assert f"{attribute}(" in line, (call.name, call.call_sites, line)
            checked += 1
    assert checked > 30
