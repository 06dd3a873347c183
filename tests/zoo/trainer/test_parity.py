"""The three frameworks compute the same logits, statistics and updates, and load each other's state."""

import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.helpers.frameworks import adapter
from tests.helpers.paths import ROOT
from tests.zoo.models.tsm.golden import relative
from tests.zoo.trainer import parity_worker as worker
from zoo.data.batch import LABEL, Field
from zoo.frameworks import FRAMEWORKS
from zoo.models import load_model_class
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.tasks import classify
from zoo.trainer.plan import Mode, Plan
from zoo.weights import layouts

OTHERS = FRAMEWORKS[1:]
FORWARDS = [f"{name}/{weights}" for name, case in worker.FORWARDS.items() for weights in case.weights]
RECORDED = "paddleclas_resnet50"
EXACT, TRAINED = 1e-5, 1e-4
# Batch statistics of few pixels amplify rounding, most where no residual branch ends in a small scale.
STATISTICS = {"drawn": (TRAINED, EXACT), "init": (TRAINED, TRAINED), "recorded": (5e-4, 5e-4)}  # logits, statistics
DEEP = {"mobile": 2e-5, "mobile_causal": 2e-5}  # statistics after 52 layers, which are 1.05e-5 apart
# Where an activation lies so near to 0 that rounding decides whether it passes a ReLU, a few gradients show it, and the
# updates that follow; most do not.
TIES = 1e-3
VANISHING = re.compile(r"\.nl\.(phi|g|out)\.bias$")  # gradients that are 0 but for rounding: a mean or a softmax takes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in FRAMEWORKS), reason="compares all three frameworks"
    ),
]


def start_worker(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.zoo.trainer.parity_worker", *map(str, arguments)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT},
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Framework -> the folder of its arrays. All run at once; each waits for what the previous one hands over."""
    from tests.zoo.weights import test_origins

    folders = {name: tmp_path_factory.mktemp("parity") / name for name in FRAMEWORKS}
    record = layouts.to_canonical(test_origins.state_dict_of(RECORDED), "paddleclas")
    processes = []
    for index, (name, folder) in enumerate(folders.items()):
        folder.mkdir()
        np.savez(folder / worker.RECORD, input=test_origins.images(2).numpy(), **record)
        previous = [folders[FRAMEWORKS[index - 1]]] if index else []
        processes.append(start_worker(name, folder, *previous))
    try:
        for process in processes:  # in the order in which they wait for each other
            _, errors = process.communicate(timeout=900)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return folders


@pytest.fixture(scope="module")
def results(folders):
    """Framework -> its arrays."""
    arrays = {}
    for name, folder in folders.items():
        with np.load(folder / "arrays.npz") as file:
            arrays[name] = dict(file)
    return arrays


def with_prefix(arrays, prefix):
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


def largest_difference(ours, expected):
    """Return the largest difference of any tensor, relative to its largest value, and its name."""
    assert ours.keys() == expected.keys() and ours
    return max(
        (float(np.abs(ours[name] - expected[name]).max() / max(np.abs(expected[name]).max(), 1e-30)), name)
        for name in ours
    )


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("forward", FORWARDS)
def test_logits_and_statistics(results, framework, forward):
    ours, expected = results[framework], results["torch"]
    assert relative(ours[f"{forward}/eval"], expected[f"{forward}/eval"]) <= EXACT
    case, weights = forward.split("/")
    logits_tolerance, statistics_tolerance = STATISTICS[weights]
    assert relative(ours[f"{forward}/train"], expected[f"{forward}/train"]) <= logits_tolerance
    difference, name = largest_difference(
        with_prefix(ours, f"{forward}/after/"), with_prefix(expected, f"{forward}/after/")
    )
    assert difference <= DEEP.get(case, statistics_tolerance), name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_recorded_logits(results, framework):
    """Another project's model of full width; those of TSM are in tests/zoo/models/model_cases.py."""
    arrays = results[framework]
    with np.load(os.path.join(ROOT, "tests/golden/resnets.npz")) as golden:
        assert relative(arrays["resnet50_wide/recorded/eval"], golden[RECORDED]) <= EXACT


def test_every_option_changes_the_logits(results):
    """Otherwise agreement would not test the options."""
    logits = {
        name: results["torch"][f"{name}/drawn/train"]
        for name in ("blockres", "block", "none", "pool", "past", "dropout")
    }
    for name, values in logits.items():
        assert all(relative(values, other) > 1e-2 for key, other in logits.items() if key != name), name


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("case", worker.UPDATES)
def test_one_update_and_three_more(results, framework, case):
    """Weights, statistics and momentum; every update clips and decays, by the factors of its parameter groups."""
    ours, expected = results[framework], results["torch"]
    for step, tolerance in (("1", EXACT), ("4", TIES)):
        if step == "4" and case in worker.CHAOTIC:
            continue
        a, b = with_prefix(ours, f"{case}/{step}/"), with_prefix(expected, f"{case}/{step}/")
        a, b = ({name: value for name, value in arrays.items() if not name.startswith("scaler/")} for arrays in (a, b))
        momentum = [name for name in b if name.startswith("optimizer/momentum/")]
        largest = max(np.abs(b[name]).max() for name in momentum)
        for name in filter(VANISHING.search, list(b)):
            assert np.abs(a.pop(name) - b.pop(name)).max() <= EXACT * largest, name
        differences = {
            name: np.linalg.norm(a[name] - b[name]) / np.linalg.norm(b[name]) for name in momentum if name in b
        }
        assert np.median(list(differences.values())) <= worker.CHAOTIC.get(case, TRAINED if step == "1" else TIES)
        assert max(differences.values()) <= 10 * TIES, max(differences, key=differences.get)
        difference, name = largest_difference(
            *({key: value for key, value in arrays.items() if key not in momentum} for arrays in (a, b))
        )
        assert difference <= tolerance, f"{name} after update {step}"
    np.testing.assert_allclose(ours[f"{case}/rows"][:1], expected[f"{case}/rows"][:1], rtol=TRAINED)
    if case not in worker.CHAOTIC:
        np.testing.assert_allclose(ours[f"{case}/rows"], expected[f"{case}/rows"], rtol=TIES)


def test_updates_move_every_tensor(results):
    for key, (case, _) in worker.UPDATES.items():
        start = worker.initial_tensors(case, "drawn")
        after = with_prefix(results["torch"], f"{key}/1/")
        unchanged = {name for name, value in start.items() if np.array_equal(after[name], value)}
        assert not [name for name in unchanged if not VANISHING.search(name)], key


@pytest.mark.parametrize("model, count", [("resnet", 25_557_032), ("tsm", 24_327_632)])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_parameters_have_the_same_names_and_number(results, framework, model, count):
    assert results[framework][f"{model}/count"] == count
    assert set(results[framework][f"{model}/names"]) == set(results["torch"][f"{model}/names"])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_decayed_parameters_of_a_resnet_50(results, framework):
    """The classifier's weight and 53 convolutions, listed here; not biases and normalizations."""
    names = set(results[framework]["resnet/names"])
    blocks = [f"layer{layer}.{block}" for layer, count in enumerate((3, 4, 6, 3), 1) for block in range(count)]
    decayed = {
        "conv1.weight",
        "fc.weight",
        *(f"{block}.conv{k}.weight" for block in blocks for k in (1, 2, 3)),
        *(f"layer{layer}.0.downsample.0.weight" for layer in (1, 2, 3, 4)),
    }
    norms = [
        "bn1",
        *(f"{block}.bn{k}" for block in blocks for k in (1, 2, 3)),
        *(f"layer{layer}.0.downsample.1" for layer in (1, 2, 3, 4)),
    ]
    plain = {"fc.bias", *(f"{norm}.{part}" for norm in norms for part in ("weight", "bias"))}
    assert (len(decayed), len(plain)) == (54, 107) and names == decayed | plain
    arch = resnet.Arch(**worker.FULL_SIZE["resnet"])
    assert {name for name in names if resnet.lr_and_decay_scale(arch, name)[1]} == decayed
    everything = resnet.Arch(decay="all", **worker.FULL_SIZE["resnet"])
    assert all(resnet.lr_and_decay_scale(everything, name) == (1.0, 1.0) for name in names)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_classifier_of_a_tsm_has_a_larger_learning_rate(results, framework):
    """By fc_lr5: seen in the first update itself, since momentum does not contain the factor."""
    case = worker.UPDATES["tsm"][0]
    start, after = worker.initial_tensors(case, "drawn"), with_prefix(results[framework], "tsm/1/")
    for name, factor in (("fc.weight", 5), ("fc.bias", 10), ("conv1.weight", 1), ("bn1.bias", 1)):
        moved = start[name] - after[name]
        np.testing.assert_allclose(
            moved, worker.LR * factor * after[f"optimizer/momentum/{name}"], rtol=1e-3, atol=1e-6
        )
        assert tsm.lr_and_decay_scale(worker.architecture(case)[1], name)[0] == factor


def test_tensors_pass_through_all_frameworks_unchanged(folders):
    """From torch to paddle to mindspore and back to torch: every byte, also of momentum and loss scale."""
    files = [load_file(folders[name] / "passed.safetensors") for name in FRAMEWORKS]
    trainer = worker.Worker("torch").trainer(*worker.UPDATES[worker.RELAY])
    trainer.load_state_dict(files[-1])
    first = files[0]
    assert {"optimizer/momentum/fc.weight", "scaler/scale", "bn1.running_var"} <= first.keys() and any(
        first["optimizer/momentum/fc.bias"]
    )
    for other in (*files[1:], trainer.state_dict()):
        assert other.keys() == first.keys()
        for name, value in first.items():
            assert (other[name].dtype, other[name].shape) == (value.dtype, value.shape), name
            assert other[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_may_change_its_framework(results, framework):
    """Two updates in each, one after the other, equal six in one."""
    relay = np.concatenate([results[name]["relay"] for name in FRAMEWORKS])
    assert relay.shape == (worker.STEPS, 2)
    np.testing.assert_allclose(relay, results[framework]["tsm/rows"], rtol=TIES)


def test_a_non_local_model_trains_in_torch_s_default_layout():
    """Channels last, which the five-dimensional tensors of a non-local block do not have."""
    backend, (case, _) = adapter("torch"), worker.UPDATES["nonlocal"]
    spec, arch = worker.architecture(case)
    mode = backend.WORLD.resolve_mode(Mode("fp32"))
    assert mode.channels_last
    fields = (Field("input", case.shape[1:], "float32"), LABEL)
    plan = Plan(fields, (), lambda name: spec.lr_and_decay_scale(arch, name), mode)
    trainer = backend.Trainer(load_model_class("tsm", "torch"), arch, classify.Settings(), plan, backend.WORLD)
    trainer.load_state_dict(worker.initial_tensors(case, "drawn"))
    batch = trainer.to_device(worker.random_batch(case))
    assert np.isfinite(trainer.read(trainer.step([batch], worker.LR, 0))["loss"])
