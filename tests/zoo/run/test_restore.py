"""Warnings of a run about the weights that it starts from."""

import json
import os
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from tests.zoo import api_cases
from tests.zoo.weights.state_dicts import small_resnet
from zoo.data.datasets import kinetics, synthetic
from zoo.data.errors import UserError
from zoo.models import load_spec
from zoo.optim import sgd
from zoo.run import resume, trained, weights
from zoo.run.checkpoint import UPDATE, latest, load_record, save_checkpoint
from zoo.trainer import state, update
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.protocol import Param
from zoo.weights import files
from zoo.weights.convert import Wanted, convert

arcface = load_spec("arcface")
resnet_spec = load_spec("resnet")
spec = load_spec("tsm")


def warnings(path, data):
    arch = spec.Arch(depth=18, num_classes=3, width=2)
    cfg = SimpleNamespace(seed=1, weights=str(path), fresh_head=False, model=arch, data=data)
    params = [Param(name, shape) for name, shape in spec.shapes(arch).items()]
    lines = []
    tensors, _ = weights.initial(cfg, spec, arch, params, ["a", "b", "c"], lines.append)
    assert all(np.array_equal(tensors[name], array) for name, array in small_resnet().items())
    return [line for line in lines if line.startswith("warning")]


@pytest.mark.parametrize("antialias", [True, False])
def test_weights_that_were_trained_on_frames_of_another_filter(tmp_path, antialias):
    path = tmp_path / "tsm.safetensors"
    files.write(str(path), small_resnet(), {"data": json.dumps({"antialias": antialias})})
    assert warnings(path, kinetics.Settings(antialias=antialias)) == []
    assert warnings(path, synthetic.Settings()) == []  # has no such key
    (line,) = warnings(path, kinetics.Settings(antialias=not antialias))
    trained, recipe = ("true", "false") if antialias else ("false", "true")
    option = f"data.antialias={trained}"
    assert line == f"warning: {path} was trained with {option}, the recipe has {recipe}; give -o {option}"


def start_from(checkpoint, arch, spec=resnet_spec):
    """Return the lines of a run that starts a model from a checkpoint; raises UserError."""
    cfg = SimpleNamespace(seed=1, weights=checkpoint, fresh_head=False, model=arch, data=kinetics.Settings())
    params = [Param(name, shape) for name, shape in spec.shapes(arch).items()]
    lines = []
    weights.initial(cfg, spec, arch, params, api_cases.CLASSES, lines.append)
    return lines


def test_a_checkpoint_of_another_size_is_told_in_one_line(tmp_path):
    path, _ = api_cases.write_checkpoint(tmp_path)
    lines = start_from(path, resnet_spec.Arch(18, 3, 8))
    assert lines[-1].startswith("weights: 102 tensors from")
    for arch, key in ((resnet_spec.Arch(34, 3, 8), "depth=18"), (resnet_spec.Arch(18, 3, 16), "width=8")):
        with pytest.raises(
            UserError, match=f"step-00000004.* is for model.{key}, the recipe has [0-9]+; give -o"
        ) as error:
            start_from(path, arch)
        assert len(str(error.value).splitlines()) == 1


def test_tensors_of_another_model_without_a_record_are_told_in_one_line(tmp_path):
    path = str(tmp_path / "faces.safetensors")
    arch = arcface.Arch(18, num_classes=2, width=8, size=32)
    files.write(path, {name: np.zeros(shape, np.float32) for name, shape in arcface.shapes(arch).items()})
    message = "holds a model of the kind arcface that is not this recipe's: 87 of its 154 tensors fit"
    with pytest.raises(UserError, match=message) as error:
        start_from(path, resnet_spec.Arch(18, 3, 8))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("prefix, more", [("", {"bn1.num_batches_tracked": np.zeros((), np.int64)}), ("module.", {})])
def test_weights_of_another_project_are_to_be_converted(prefix, more, tmp_path):
    path = str(tmp_path / "tsm.safetensors")
    files.write(path, {prefix + name: tensor for name, tensor in (small_resnet() | more).items()})
    with pytest.raises(UserError, match=f"such as {prefix}.*; convert it first: zoo convert {path} --out"):
        warnings(path, kinetics.Settings())


def test_weights_without_a_record_of_their_preprocessing(tmp_path):
    files.write(str(tmp_path / "tsm.safetensors"), small_resnet())
    assert warnings(tmp_path / "tsm.safetensors", kinetics.Settings()) == []


def save(folder, tensors):
    """Write the checkpoint of update 7."""
    scaler = {key: np.array(number, np.float32) for number, key in enumerate(update.KEYS)}
    record = {"classes": ["a"], "step": 7, "weights": "before", "global_batch": 8}
    save_checkpoint(str(folder), 7, {**tensors, **scaler}, record, 1)


PLAN = Plan((), (), lambda name: ParamGroup(1.0, 0.0), Mode("fp32"), optimizer=sgd.Settings())


def resumed(folder, params, statistics=(), plan=PLAN):
    """Return what a trainer with these tensors receives of the checkpoint, and the lines for the console."""
    loaded, lines = {}, []
    trainer = SimpleNamespace(params=params, statistics=statistics, load_state_dict=loaded.update)
    assert resume.load(latest(folder), trainer, plan, 8, ["a"], lines.append) == (7, "before")
    return loaded, lines


def test_a_loss_scale_goes_on_where_it_adapts(tmp_path):
    save(tmp_path, {"fc.bias": np.zeros(3, np.float32), state.slot_key("momentum", "fc.bias"): np.zeros(3, np.float32)})
    fp16, params = replace(PLAN, mode=Mode("fp16"), loss_scale=1024.0), [Param("fc.bias", (3,))]
    for plan, scale in ((fp16, 0.0), (replace(fp16, dynamic_loss_scale=False), 1024.0), (PLAN, 1.0)):
        loaded, _ = resumed(str(tmp_path), params, plan=plan)
        assert (float(loaded[update.SCALE_KEY]), float(loaded[update.GOOD_STEPS_KEY])) == (scale, 1.0)


@pytest.mark.parametrize("rows", [None, (0, 2), (2, 5)], ids=["whole", "first rows", "last rows"])
def test_a_trainer_receives_all_tensors_and_of_a_sharded_class_matrix_its_own_rows(tmp_path, rows):
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal((5, 3), np.float32) for name in ("head.weight", "fc.weight")}
    slots = {state.slot_key("momentum", name): rng.standard_normal((5, 3), np.float32) for name in arrays}
    save(tmp_path, {**arrays, **slots})
    assert set(slots) <= set(load_file(f"{latest(str(tmp_path))}/{UPDATE}"))
    params = [Param("head.weight", (5, 3), rows=rows), Param("fc.weight", (5, 3))]
    loaded, lines = resumed(str(tmp_path), params)
    assert lines == []
    part = slice(*rows) if rows else slice(None)
    for name, own in (("head.weight", part), ("fc.weight", slice(None))):
        assert np.array_equal(loaded[name], arrays[name][own])
        assert np.array_equal(loaded[state.slot_key("momentum", name)], slots[state.slot_key("momentum", name)][own])
    assert set(loaded) == set(state.shapes(params, PLAN))


def test_running_statistics_of_the_loss_are_resumed_start_anew_or_are_dropped(tmp_path):
    """Saved beside the optimizer's state, and told in a line where only one of checkpoint and loss has them."""
    arrays = {name: np.ones((2, 3), np.float32) for name in ("fc.weight", "optimizer/momentum/fc.weight")}
    averages = {f"objective/{name}": np.array(7, np.float32) for name in ("batch_mean", "batch_std")}
    for folder, saved in (("old", {}), ("new", averages)):
        (tmp_path / folder).mkdir()
        save(tmp_path / folder, {**arrays, **saved})
    assert averages.keys() <= load_file(f"{latest(str(tmp_path / 'new'))}/{UPDATE}").keys()
    params, statistics = [Param("fc.weight", (2, 3))], [Param(name, (), True) for name in ("batch_mean", "batch_std")]
    loaded, lines = resumed(str(tmp_path / "new"), params, statistics)
    assert loaded.keys() == set(state.shapes(params, PLAN, statistics)) > averages.keys() and lines == []
    loaded, (line,) = resumed(str(tmp_path / "old"), params, statistics)
    assert loaded.keys() == set(state.shapes(params, PLAN))
    missing = (
        r"old.* has no running statistics of the loss \(objective/batch_mean, objective/batch_std\): they start anew"
    )
    assert re.search(missing, line)
    loaded, (line,) = resumed(str(tmp_path / "new"), params)
    assert loaded.keys() == set(state.shapes(params, PLAN))
    assert re.search(r"no running statistics: those in .*new.* are dropped \(objective/batch_mean", line)


@pytest.mark.parametrize(
    "name, value, problem",
    [
        ("layer3.0.conv1.weight", np.nan, "NaN or infinity in layer3.0.conv1.weight"),
        ("fc.bias", -np.inf, "NaN or infinity in fc.bias"),
        ("bn1.running_var", -1e-3, "variances below 0 in bn1.running_var"),
    ],
)
def test_weights_of_a_diverged_run_are_refused_by_all_who_read_them(tmp_path, name, value, problem):
    tensors = {key: array.copy() for key, array in small_resnet().items()}
    tensors[name].flat[-1] = value
    files.write(str(tmp_path / "a.safetensors"), tensors)
    path = api_cases.save(tmp_path, "resnet50_demo", ["model.depth=18", "model.width=2"], tensors, api_cases.CLASSES)
    arch = resnet_spec.Arch(18, 3, 2)
    for read in (
        lambda: convert(str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"), Wanted(), print),
        lambda: start_from(str(tmp_path / "a.safetensors"), arch),
        lambda: start_from(path, arch),
        lambda: trained.read(path, None, "cpu", []).tensors,
        lambda: zoo.numpy_weights("resnet18", pretrained=path, width=2),
    ):
        with pytest.raises(UserError, match=f"holds {problem}, as a run that diverged leaves them"):
            read()
    assert not (tmp_path / "b.safetensors").exists()


def test_a_diverged_classifier_does_no_harm_to_a_new_one(tmp_path):
    tensors = {**small_resnet(), "fc.bias": np.full(3, np.nan, np.float32)}
    files.write(str(tmp_path / "a.safetensors"), tensors)
    assert zoo.numpy_weights("resnet18", pretrained=tmp_path / "a.safetensors", width=2, num_classes=5)


def test_a_link_that_moves_gives_record_and_weights_of_one_checkpoint(tmp_path):
    path, first = api_cases.write_checkpoint(tmp_path, seed=3)
    run = os.path.dirname(os.path.dirname(path))
    found = trained.read(run, None, "cpu", [])
    second = zoo.numpy_weights("resnet18", width=8, num_classes=3, seed=4)
    record = load_record(path)
    save_checkpoint(run, 8, second, record, 2)
    assert np.array_equal(found.tensors["conv1.weight"], first["conv1.weight"]) and found.record["step"] == 4
    assert found.path == os.path.join(run, "checkpoints/step-00000004")
    assert trained.read(run, None, "cpu", []).record["step"] == 8
