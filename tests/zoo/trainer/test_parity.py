"""The three frameworks compute the same: logits, statistics, updates, and what they hand to each other."""

import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.helpers.paths import ROOT
from tests.zoo.models.tsm.golden import relative
from tests.zoo.trainer import parity_worker as worker
from zoo.frameworks import FRAMEWORKS
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.weights import layouts

OTHERS = FRAMEWORKS[1:]
PLACES = [f"{name}/{weights}" for name, case in worker.FORWARDS.items() for weights in case.weights]
RECORDED = "paddleclas_resnet50"
EXACT, TRAINED = 1e-5, 1e-4
# Batch statistics of few pixels amplify rounding, most where no residual branch ends in a small scale.
STATISTICS = {"drawn": (TRAINED, EXACT), "init": (TRAINED, TRAINED), "recorded": (5e-4, 5e-4)}  # logits, statistics
# Where an activation lies so near to 0 that rounding decides whether it passes a ReLU, a few gradients show it, and the
# updates that follow; most do not.
TIES = 1e-3
CHAOTIC = {"nonlocal": 5e-4}  # attention amplifies rounding: momenta after the first update, and no further ones
VANISHING = re.compile(r"\.nl\.(phi|g|out)\.bias$")  # gradients that are 0 but for rounding: a mean or a softmax takes

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in FRAMEWORKS), reason="compares all three frameworks"
)


def child(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.zoo.trainer.parity_worker", *map(str, words)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT},
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Framework -> the folder of what it computed. All at once; each waits for what the one before hands over."""
    from tests.zoo.weights import test_origins

    made = {name: tmp_path_factory.mktemp("parity") / name for name in FRAMEWORKS}
    record = layouts.to_canonical(test_origins.state_dict_of(RECORDED), "paddleclas")
    processes = []
    for number, (name, folder) in enumerate(made.items()):
        folder.mkdir()
        np.savez(folder / worker.RECORD, input=test_origins.images(2).numpy(), **record)
        processes.append(child(name, folder, *[made[FRAMEWORKS[number - 1]]] * (number > 0)))
    try:
        for process in processes:  # in the order in which they wait for each other
            _, errors = process.communicate(timeout=900)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return made


@pytest.fixture(scope="module")
def found(folders):
    """Framework -> its arrays."""
    arrays = {}
    for name, folder in folders.items():
        with np.load(folder / "arrays.npz") as file:
            arrays[name] = dict(file)
    return arrays


def below(arrays, prefix):
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


def worst(ours, theirs):
    """The largest difference of any tensor, relative to its largest value, and its name."""
    assert ours.keys() == theirs.keys() and ours
    return max(
        (float(np.abs(ours[name] - theirs[name]).max() / max(np.abs(theirs[name]).max(), 1e-30)), name) for name in ours
    )


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("place", PLACES)
def test_logits_and_statistics(found, framework, place):
    ours, theirs = found[framework], found["torch"]
    assert relative(ours[f"{place}/eval"], theirs[f"{place}/eval"]) <= EXACT
    of_logits, of_statistics = STATISTICS[place.split("/")[1]]
    assert relative(ours[f"{place}/train"], theirs[f"{place}/train"]) <= of_logits
    difference, name = worst(below(ours, f"{place}/after/"), below(theirs, f"{place}/after/"))
    assert difference <= of_statistics, name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_recorded_logits(found, framework):
    """Another project's net of full width; those of TSM are compared where each framework's nets are tested."""
    arrays = found[framework]
    with np.load(os.path.join(ROOT, "tests/golden/resnets.npz")) as golden:
        assert relative(arrays["resnet50_wide/recorded/eval"], golden[RECORDED]) <= EXACT


def test_the_options_are_told_apart(found):
    """Otherwise agreement would say nothing about them."""
    logits = {
        name: found["torch"][f"{name}/drawn/train"] for name in ("blockres", "block", "none", "pool", "past", "dropout")
    }
    for name, values in logits.items():
        assert all(relative(values, other) > 1e-2 for key, other in logits.items() if key != name), name


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("case", worker.UPDATES)
def test_one_update_and_three_more(found, framework, case):
    """Weights, statistics and momentum; every update clips, decays and has its own factors."""
    ours, theirs = found[framework], found["torch"]
    for step, tolerance in (("1", EXACT), ("4", TIES)):
        if step == "4" and case in CHAOTIC:
            continue
        a, b = below(ours, f"{case}/{step}/"), below(theirs, f"{case}/{step}/")
        a, b = ({name: value for name, value in arrays.items() if not name.startswith("scaler/")} for arrays in (a, b))
        momentum = [name for name in b if name.startswith("momentum/")]
        largest = max(np.abs(b[name]).max() for name in momentum)
        for name in filter(VANISHING.search, list(b)):
            assert np.abs(a.pop(name) - b.pop(name)).max() <= EXACT * largest, name
        spread = {name: np.linalg.norm(a[name] - b[name]) / np.linalg.norm(b[name]) for name in momentum if name in b}
        assert np.median(list(spread.values())) <= CHAOTIC.get(case, TRAINED if step == "1" else TIES)
        assert max(spread.values()) <= 10 * TIES, max(spread, key=spread.get)
        difference, name = worst(
            *({key: value for key, value in arrays.items() if key not in momentum} for arrays in (a, b))
        )
        assert difference <= tolerance, f"{name} after update {step}"
    np.testing.assert_allclose(ours[f"{case}/rows"][:1], theirs[f"{case}/rows"][:1], rtol=TRAINED)
    if case not in CHAOTIC:
        np.testing.assert_allclose(ours[f"{case}/rows"], theirs[f"{case}/rows"], rtol=TIES)


def test_updates_move_every_tensor(found):
    for case, (shape, _) in worker.UPDATES.items():
        start = worker.tensors(shape, "drawn")
        after = below(found["torch"], f"{case}/1/")
        still = {name for name, value in start.items() if np.array_equal(after[name], value)}
        assert not [name for name in still if not VANISHING.search(name)], case


@pytest.mark.parametrize("model, count", [("resnet", 25_557_032), ("tsm", 24_327_632)])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_parameters_are_counted_alike(found, framework, model, count):
    assert found[framework][f"{model}/count"] == count
    assert set(found[framework][f"{model}/names"]) == set(found["torch"][f"{model}/names"])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_decays_in_a_resnet_50(found, framework):
    """By an explicit list of the classifier's weight and 53 convolutions; the biases and normalisations go without."""
    names = set(found[framework]["resnet/names"])
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
    arch = resnet.Arch(**worker.FULL["resnet"])
    assert {name for name in names if resnet.lr_and_decay_scale(arch, name)[1]} == decayed
    everything = resnet.Arch(decay="all", **worker.FULL["resnet"])
    assert all(resnet.lr_and_decay_scale(everything, name) == (1.0, 1.0) for name in names)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_classifier_of_a_tsm_learns_faster(found, framework):
    """As fc_lr5 says: seen in the first update itself, since momentum holds the direction without the factor."""
    case = worker.UPDATES["tsm"][0]
    start, after = worker.tensors(case, "drawn"), below(found[framework], "tsm/1/")
    for name, factor in (("fc.weight", 5), ("fc.bias", 10), ("conv1.weight", 1), ("bn1.bias", 1)):
        moved = start[name] - after[name]
        np.testing.assert_allclose(moved, worker.RATE * factor * after[f"momentum/{name}"], rtol=1e-3, atol=1e-6)
        assert tsm.lr_and_decay_scale(worker.complete(case)[1], name)[0] == factor


def test_tensors_go_round_unchanged(folders, tmp_path):
    """From torch to paddle to mindspore and back to torch: every byte, also of momentum and loss scale."""
    back = child("torch", tmp_path, "--reload", folders["mindspore"])
    _, errors = back.communicate(timeout=120)
    assert back.returncode == 0, errors
    first = load_file(folders["torch"] / "passed.safetensors")
    assert {"momentum/fc.weight", "scaler/scale", "bn1.running_var"} <= first.keys() and any(first["momentum/fc.bias"])
    for path in (
        folders["paddle"] / "passed.safetensors",
        folders["mindspore"] / "passed.safetensors",
        tmp_path / "reloaded.safetensors",
    ):
        other = load_file(path)
        assert other.keys() == first.keys()
        for name, value in first.items():
            assert (other[name].dtype, other[name].shape) == (value.dtype, value.shape), name
            assert other[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_may_change_its_framework(found, framework):
    """Two updates in each, one after the other, follow six in one."""
    relay = np.concatenate([found[name]["relay"] for name in FRAMEWORKS])
    assert relay.shape == (worker.STEPS, 2)
    np.testing.assert_allclose(relay, found[framework]["tsm/rows"], rtol=TIES)


def test_a_non_local_net_trains_in_torchs_own_layout():
    """Which is channels last, and which tensors of three dimensions and a batch do not have."""
    code = (
        "from tests.zoo.trainer.parity_worker import *\n"
        "w = Worker('torch')\n"
        "case, _ = UPDATES['nonlocal']\n"
        "spec, arch = complete(case)\n"
        "plan = Plan((Field('input', case.shape[1:], 'float32'), Field('label', (), 'int64')), (),\n"
        "            lambda name: spec.lr_and_decay_scale(arch, name), w.world.resolve_mode(Mode('fp32')))\n"
        "trainer = w.backend.Trainer(load_model_class('tsm', 'torch'), arch, CrossEntropy(), plan, w.world)\n"
        "trainer.load_state_dict(tensors(case, 'drawn'))\n"
        "print(trainer.mode.channels_last, trainer.read(trainer.step([trainer.to_device(batch(case))], 0.05))['loss'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT},
    )
    assert done.returncode == 0 and re.match(r"True \d+\.\d+", done.stdout), done.stderr
