"""Face recognition models of insightface and PLSC: names, variants, and class matrices joined from all ranks."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.helpers.conversions import assert_equal, converted, refused
from tests.zoo.models.arcface.golden import relative
from tests.zoo.weights.face_models import (
    PLSC,
    SMALL,
    as_insightface,
    backbone,
    class_rows,
    save_plsc,
    save_plsc2,
    variable,
)
from tests.zoo.weights.state_dicts import numbered, recorded_shapes
from zoo.models.arcface import spec
from zoo.models.arcface.torch import Model
from zoo.weights import architectures, files, layouts, names
from zoo.weights.match import match_state_dict


@pytest.mark.parametrize(
    "file, origin, variant",
    [
        ("insightface_r50", "insightface", "insightface"),
        ("plsc_r50", "plsc", "plsc"),
        ("plsc2_r50", "plsc2", "insightface"),
    ],
)
def test_all_names(file, origin, variant):
    tensors = numbered(recorded_shapes(f"arcface_names_{file}"))
    assert names.detect(tensors) == origin
    canonical = layouts.to_canonical(tensors, origin)
    options = architectures.infer_face_model(canonical)
    classes = {"num_classes": 7} if origin == "plsc2" else {}
    assert options == {"variant": variant, "depth": 50, "width": 64, "embedding": 512, "size": 112, **classes}
    shapes = spec.shapes(spec.Arch(**{"num_classes": 1, **options}))
    if origin != "plsc2":
        del shapes[spec.HEAD_WEIGHT]
    report = match_state_dict(canonical, shapes)
    assert report.complete, str(report)


@torch.no_grad()
def embeddings(arch, values, images):
    model = Model(arch)
    result = model.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in values.items()}, False)
    assert not result.unexpected_keys and all(name.endswith(names.COUNTER) for name in result.missing_keys)
    return model.double().eval()(torch.from_numpy(images)).numpy()


def test_the_other_variant_is_the_same_function(tmp_path, capsys):
    """With pixels scaled as in the training of each variant."""
    expected = backbone(PLSC)
    save_plsc(tmp_path / "19", expected)
    moved, metadata = converted(tmp_path, tmp_path / "19", "-o", "variant=insightface")
    pixels = np.random.default_rng(4).integers(0, 256, (3, 3, 20, 20)).astype(np.float64)
    before = embeddings(PLSC, expected, (pixels - 127.5) / 128)
    after = embeddings(SMALL, moved, (pixels - 127.5) / 127.5)
    assert relative(after, before) <= 1e-6
    assert json.loads(metadata["arch"])["variant"] == "insightface"
    assert "normalisation" not in capsys.readouterr().out
    for part in ("conv1.weight", "bn1.running_var", "layer1.0.prelu.weight"):  # each correction matters
        uncorrected = {**moved, part: np.broadcast_to(expected[part], moved[part].shape)}
        if not part.endswith("prelu.weight"):
            assert relative(embeddings(SMALL, uncorrected, (pixels - 127.5) / 127.5), before) > 1e-5


@pytest.mark.parametrize("arch", [replace(SMALL, num_classes=5), replace(PLSC, num_classes=5, depth=34)])
def test_a_canonical_file_keeps_its_classes(tmp_path, arch):
    expected = {**backbone(arch), spec.HEAD_WEIGHT: class_rows(5)}
    files.write(str(tmp_path / "in.safetensors"), expected, {"classes": "[]"})
    tensors, metadata = converted(tmp_path, tmp_path / "in.safetensors")
    assert_equal(tensors, expected)
    assert metadata["origin"] == "canonical" and metadata["classes"] == "[]"


@pytest.mark.parametrize(
    "flags, reason",
    [
        (("-o", "variant=plsc"), "prelu.weight: (2,), the model expects (1,)"),
        (("-o", "size=64"), "fc.weight: (6, 64), the model expects (6, 256)"),
        (("-o", "depth=51"), "expected one of 18, 34, 50, 100, 101, 152, 200"),
        (("-o", "crop=1"), "for arcface give"),
        (("--to", "torchvision"), "--to torchvision"),
        (("--model", "resnet"), "does not match the model"),
    ],
)
def test_stated_options_must_match(tmp_path, capsys, flags, reason):
    torch.save(as_insightface(backbone(SMALL)), tmp_path / "in.pth")
    assert reason in refused(capsys, tmp_path, tmp_path / "in.pth", *flags)


@pytest.mark.parametrize("name", ["conv1.weight", spec.HEAD_WEIGHT])
def test_a_tensor_without_axes_is_refused(tmp_path, capsys, name):
    tensors = {**backbone(SMALL), spec.HEAD_WEIGHT: class_rows(5), name: np.array(1.0, np.float32)}
    assert "--model" in refused(capsys, tmp_path, tensors)


META = {"pretrain_nranks": 3, "emb_dim": 6, "num_classes": 10}


def test_a_file_of_insightface(tmp_path, capsys):
    """Of a wrapped model."""
    expected = backbone(SMALL)
    torch.save({f"module.{name}": tensor for name, tensor in as_insightface(expected).items()}, tmp_path / "in.pth")
    tensors, metadata = converted(tmp_path, tmp_path / "in.pth")
    assert_equal(tensors, expected)
    assert metadata["model"] == "arcface" and metadata["origin"] == "insightface"
    arch = {"variant": "insightface", "depth": 18, "width": 2, "embedding": 6}
    assert json.loads(metadata["arch"]) == arch  # no size: a run takes it from its data
    assert "fresh_head=true" in capsys.readouterr().out


def save_insightface(folder, classes, ranks):
    """Write checkpoint_gpu_<rank>.pt of all ranks, as save_all_states does."""
    for rank, part in enumerate(np.array_split(class_rows(classes), ranks)):
        optimizer = {"state": {0: {"momentum_buffer": torch.zeros(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
        torch.save(
            {
                "epoch": 3,
                "global_step": 70,
                "state_dict_backbone": as_insightface(backbone(SMALL)),
                "state_dict_softmax_fc": {"weight": torch.from_numpy(part.copy())},
                "state_optimizer": optimizer,
                "state_lr_scheduler": {"base_lrs": [0.1], "last_epoch": 70},
            },
            folder / f"checkpoint_gpu_{rank}.pt",
        )


@pytest.mark.parametrize("rank", [0, 10])
def test_the_classes_of_insightface_are_joined(tmp_path, rank):
    """In numerical order: 10 comes after 9."""
    save_insightface(tmp_path, 25, 11)
    tensors, metadata = converted(tmp_path, tmp_path / f"checkpoint_gpu_{rank}.pt", "--head", "-o", "num_classes=25")
    assert_equal(tensors, {**backbone(SMALL), spec.HEAD_WEIGHT: class_rows(25)})
    assert json.loads(metadata["arch"])["num_classes"] == 25


def test_a_missing_rank_of_insightface(tmp_path, capsys):
    save_insightface(tmp_path, 25, 3)
    os.remove(tmp_path / "checkpoint_gpu_1.pt")
    assert "the file of rank 1 is missing" in refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head")
    save_insightface(tmp_path, 25, 3)
    os.remove(tmp_path / "checkpoint_gpu_2.pt")  # only the number of classes shows it
    text = refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head", "-o", "num_classes=25")
    assert "head.weight: (17, 6), the model expects (25, 6)" in text


def columns(classes, ranks):
    """Split classes over ranks as PLSC does: the same number on every rank but the last."""
    per_rank = -(-classes // ranks)
    return [np.ascontiguousarray(class_rows(classes)[k * per_rank : (k + 1) * per_rank].T) for k in range(ranks)]


def test_a_folder_of_plsc(tmp_path, capsys):
    expected = backbone(PLSC)
    save_plsc(tmp_path / "19", expected, columns(10, 3), META)
    tensors, metadata = converted(tmp_path, tmp_path / "19")
    assert_equal(tensors, expected)
    assert json.loads(metadata["arch"]) == {"variant": "plsc", "depth": 18, "width": 2, "embedding": 6}
    assert metadata["file"] == "19" and "-o data.normalisation=plsc" in capsys.readouterr().out
    os.remove(tmp_path / "out.safetensors")
    assert_equal(converted(tmp_path, tmp_path / "19", "--head")[0], {**expected, spec.HEAD_WEIGHT: class_rows(10)})


def test_the_classes_of_one_gpu(tmp_path):
    expected = backbone(PLSC)
    save_plsc(tmp_path / "19", expected, meta={"pretrain_nranks": 1, "emb_dim": 6, "num_classes": 4})
    (tmp_path / "19" / "final_fc_w_0").write_bytes(variable(np.ascontiguousarray(class_rows(4).T)))
    assert_equal(converted(tmp_path, tmp_path / "19", "--head")[0], {**expected, spec.HEAD_WEIGHT: class_rows(4)})


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda folder: os.remove(folder / "dist@arcface@rank@00001.w_0"), "the file of rank 1 is missing"),
        (
            lambda folder: os.remove(folder / "dist@arcface@rank@00002.w_0"),
            "lists 3 ranks, but the folder holds the classes of 2",
        ),
        (
            lambda folder: (folder / "meta.json").write_text(json.dumps({**META, "num_classes": 11})),
            "lists 11 classes, but the files hold 10",
        ),
        (lambda folder: os.remove(folder / "conv2d_0.w_0"), "without variables of PLSC"),
    ],
)
def test_damaged_folders_of_plsc(tmp_path, capsys, change, reason):
    save_plsc(tmp_path / "19", backbone(PLSC), columns(10, 3), META)
    change(tmp_path / "19")
    assert reason in refused(capsys, tmp_path, tmp_path / "19", "--head")


def test_the_classes_of_plsc2_are_joined(tmp_path, capsys):
    expected = backbone(SMALL)
    save_plsc2(tmp_path / "epoch_1.pdparams", expected)
    save_plsc2(tmp_path / "epoch_12.pdparams", expected)  # its name begins alike
    for rank, part in enumerate(np.array_split(class_rows(7), 3)):
        save_plsc2(tmp_path / f"epoch_1_rank{rank}.pdparams", {}, part)
        save_plsc2(tmp_path / f"epoch_12_rank{rank}.pdparams", {}, part + 1)
    assert_equal(
        converted(tmp_path, tmp_path / "epoch_1.pdparams", "--head")[0], {**expected, spec.HEAD_WEIGHT: class_rows(7)}
    )
    os.remove(tmp_path / "out.safetensors")
    os.remove(tmp_path / "epoch_1_rank0.pdparams")
    assert "the file of rank 0 is missing" in refused(capsys, tmp_path, tmp_path / "epoch_1.pdparams", "--head")


def test_the_classes_of_plsc2_on_one_gpu(tmp_path):
    expected = backbone(SMALL)
    save_plsc2(tmp_path / "in.pdparams", expected, class_rows(4))
    tensors, metadata = converted(tmp_path, tmp_path / "in.pdparams")
    assert_equal(tensors, expected)
    assert metadata["origin"] == "plsc2"
    os.remove(tmp_path / "out.safetensors")
    assert_equal(
        converted(tmp_path, tmp_path / "in.pdparams", "--head")[0], {**expected, spec.HEAD_WEIGHT: class_rows(4)}
    )
