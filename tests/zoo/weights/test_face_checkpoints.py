"""Checkpoints of insightface and PLSC: backbones are converted, classifier weights are joined from all ranks."""

import json
import os

import numpy as np
import pytest
import torch

from tests.zoo.weights.face_models import (
    PLSC,
    SMALL,
    as_insightface,
    assert_equal,
    backbone,
    class_rows,
    converted,
    refused,
    save_plsc,
    save_plsc2,
    variable,
)
from zoo.models.arcface import spec
from zoo.weights.files import sha256

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


def test_the_digest_is_of_all_files(tmp_path):
    save_insightface(tmp_path, 5, 2)
    digests = []
    for change in (b"", b" "):
        with open(tmp_path / "checkpoint_gpu_1.pt", "ab") as file:
            file.write(change)
        for flags in ((), ("--head",)):
            digests.append(converted(tmp_path, tmp_path / "checkpoint_gpu_0.pt", *flags)[1]["sha256"])
            os.remove(tmp_path / "out.safetensors")
    alone, joined, alone_again, joined_again = digests
    assert alone == alone_again == sha256(str(tmp_path / "checkpoint_gpu_0.pt"))
    assert len({alone, joined, joined_again}) == 3


def test_a_missing_rank_of_insightface(tmp_path, capsys):
    save_insightface(tmp_path, 25, 3)
    os.remove(tmp_path / "checkpoint_gpu_1.pt")
    assert "the file of rank 1 is missing" in refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head")
    save_insightface(tmp_path, 25, 3)
    os.remove(tmp_path / "checkpoint_gpu_2.pt")  # only the number of classes shows it
    text = refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head", "-o", "num_classes=25")
    assert "head.weight: (17, 6), the model expects (25, 6)" in text


@pytest.mark.parametrize(
    "content, reason",
    [
        ({"state_dict_backbone": {}}, "holds no state_dict_backbone with tensors"),
        ({"state_dict_backbone": as_insightface(backbone(SMALL))}, "holds no state_dict_softmax_fc with tensors"),
        (
            {
                "state_dict_backbone": as_insightface(backbone(SMALL)),
                "state_dict_softmax_fc": {"weight": torch.zeros(3)},
            },
            "holds no rows of a classifier weight",
        ),
    ],
)
def test_other_checkpoints_are_refused(tmp_path, capsys, content, reason):
    torch.save(content, tmp_path / "checkpoint_gpu_0.pt")
    assert reason in refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head")


def test_a_backbone_has_no_classes(tmp_path, capsys):
    torch.save(as_insightface(backbone(SMALL)), tmp_path / "in.pth")
    assert "--head: there is no classifier weight" in refused(capsys, tmp_path, tmp_path / "in.pth", "--head")
    assert "missing keys (1):\n    head.weight" in refused(capsys, tmp_path, tmp_path / "in.pth", "-o", "num_classes=5")


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
        (lambda folder: (folder / "meta.json").write_text("{}"), "meta.json is not as PLSC writes it"),
        (
            lambda folder: (folder / "dist@arcface@rank@00001.b_0").write_bytes(variable(np.ones(1, np.float32))),
            "a classifier with biases",
        ),
        (
            lambda folder: (folder / "dist@arcface@rank@00001.w_0").write_bytes(variable(np.zeros((5, 4), np.float32))),
            "their shapes are (4, 5) and (4, 6)",
        ),
        (
            lambda folder: (folder / "batch_norm_3.w_1").write_bytes(variable(np.ones(1, np.float32))[:20]),
            "batch_norm_3.w_1 is not a complete variable",
        ),
        (lambda folder: os.remove(folder / "batch_norm_3.w_1"), "missing keys (1):\n    layer1.0.bn3.running_mean"),
        (
            lambda folder: (folder / "fc_1.w_0").write_bytes(variable(np.ones(1, np.float32))),
            "unexpected keys (1):\n    fc_1.w_0",
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
