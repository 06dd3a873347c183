"""ArcFace from elsewhere: names map completely, class matrices are joined, corrections keep the function, what does not
fit is refused."""

import json
import os
import pickle
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from data.errors import UserError
from tests.zoo.models.arcface.golden import (
    CASES,
    GOLDEN,
    TOLERANCE,
    drawn,
    pictures,
    recorded,
    relative,
)
from tools import convert
from zoo.models.arcface import spec
from zoo.models.arcface.torch import Model
from zoo.weights import faces, files, paddle_variable, infer, layouts, names
from zoo.weights.match import match_state_dict

SMALL = spec.Arch(depth=18, width=2, embedding=6, size=20)
PLSC = replace(SMALL, variant="plsc")
# Written by the save operator of paddlepaddle 3.3.1: a whole file, and all of another but its 64 * 3 * 3 * 3 numbers.
SAVED = bytes.fromhex("000000000000000000000000000000000400000008051001d1c7ab3e")
SAVED_HEAD = bytes.fromhex("000000000000000000000000000000000a00000008051040100310031003")
TYPES = {"float32": 5, "float16": 4, "int64": 3}


def variable(array):
    """A file of Paddle 1, as the docstring of zoo/weights/paddle_variable.py has it."""
    sizes = b""
    for size in array.shape:
        sizes += b"\x10"
        while size > 127:
            sizes += bytes([size & 127 | 128])
            size >>= 7
        sizes += bytes([size])
    message = bytes([8, TYPES[str(array.dtype)]]) + sizes
    return struct.pack("<IQIi", 0, 0, 0, len(message)) + message + array.tobytes()


def tensors(arch):
    """Canonical, without classes."""
    return {name: drawn(name, shape) for name, shape in spec.shapes(arch).items() if name != spec.HEAD_WEIGHT}


def matrix(classes, embedding=6):
    return np.random.default_rng(classes).standard_normal((classes, embedding), dtype=np.float32)


def as_insightface(ours):
    state = {name: torch.from_numpy(tensor) for name, tensor in ours.items()}
    counters = {
        name.replace("running_var", "num_batches_tracked"): torch.tensor(5)
        for name in ours
        if name.endswith("running_var")
    }
    return {**state, **counters}


def as_plsc(folder, ours, columns=(), meta=None):
    """The folder of a pass: the net, the columns of each rank, and what training saves beside them."""
    folder.mkdir()
    for old, name in faces.plsc_names(sum(spec.BLOCKS[18])).items():
        tensor = ours[name].T if name == "fc.weight" else ours[name]
        (folder / old).write_bytes(variable(np.ascontiguousarray(tensor)))
    (folder / "conv2d_0.w_0_velocity_0").write_bytes(variable(ours["conv1.weight"]))
    (folder / "@LR_DECAY_COUNTER@").write_bytes(variable(np.array([7], np.int64)))
    for rank, part in enumerate(columns):
        name = f"dist@arcface@rank@{rank:05d}.w_0"
        (folder / name).write_bytes(variable(part))
        (folder / f"{name}_velocity_0").write_bytes(variable(part))
    if meta:
        (folder / "meta.json").write_text(json.dumps(meta))


def as_plsc2(path, ours, head=None):
    """paddle.save of a state dict, a pickle of arrays."""
    ending = {"running_mean": "_mean", "running_var": "_variance"}
    state = {}
    for name, tensor in ours.items():
        module, part = name.rsplit(".", 1)
        part = "_weight" if module.endswith("prelu") else ending.get(part, part)
        state[f"{module}.{part}"] = np.ascontiguousarray(tensor.T) if name == "fc.weight" else tensor
    if head is not None:
        state[spec.HEAD_WEIGHT] = head
    path.write_bytes(pickle.dumps(state, protocol=4))


def run(source, target, *more):
    return convert.main([str(source), str(target), *more])


def converted(folder, source, *more):
    assert run(source, folder / "out.safetensors", *more) == 0
    return files.read(str(folder / "out.safetensors"))


def refused(capsys, folder, source, *more):
    assert run(source, folder / "out.safetensors", *more) == 2 and not (folder / "out.safetensors").exists()
    output = capsys.readouterr()
    assert output.err.startswith("error: ")
    return output.out + output.err


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def listed(which):
    rows = [line.split() for line in (GOLDEN / f"arcface_names_{which}.txt").read_text().splitlines() if line[0] != "#"]
    return {name: () if shape == "scalar" else tuple(map(int, shape.split("x"))) for name, shape in rows}


@pytest.mark.parametrize(
    "which, origin, variant",
    [
        ("insightface_r50", "insightface", "insightface"),
        ("plsc_r50", "plsc", "plsc"),
        ("plsc2_r50", "plsc2", "insightface"),
    ],
)
def test_names_map_completely(which, origin, variant):
    theirs = {name: np.broadcast_to(np.float32(k), shape) for k, (name, shape) in enumerate(listed(which).items())}
    assert names.detect(theirs) == origin
    ours = layouts.to_canonical(theirs, origin)
    fields = infer.embedder(ours)
    assert fields == {
        "variant": variant,
        "depth": 50,
        "width": 64,
        "embedding": 512,
        "size": 112,
        **({"num_classes": 7} if origin == "plsc2" else {}),
    }
    shapes = spec.shapes(spec.Arch(**fields))
    if origin != "plsc2":
        del shapes[spec.HEAD_WEIGHT]
    report = match_state_dict(ours, shapes)
    assert report.complete, str(report)


@pytest.mark.parametrize(
    "old, new",
    [
        ("conv2d_0.w_0", "conv1.weight"),
        ("prelu_0.w_0", "prelu.weight"),
        ("batch_norm_0.w_2", "bn1.running_var"),
        ("batch_norm_1.b_0", "layer1.0.bn1.bias"),
        ("conv2d_3.w_0", "layer1.0.downsample.0.weight"),
        ("batch_norm_4.w_1", "layer1.0.downsample.1.running_mean"),
        ("conv2d_4.w_0", "layer1.1.conv1.weight"),
        ("prelu_24.w_0", "layer4.2.prelu.weight"),
        ("conv2d_52.w_0", "layer4.2.conv2.weight"),
        ("batch_norm_77.w_0", "bn2.weight"),
        ("fc_0.b_0", "fc.bias"),
        ("batch_norm_78.w_0", "features.weight"),
    ],
)
def test_single_names_of_plsc(old, new):
    """By the order that is recorded: tests/golden/arcface_names_plsc_r50.txt."""
    assert names.canonical_name(old, "plsc", 24) == new


def test_a_file_of_insightface(tmp_path, capsys):
    ours = tensors(SMALL)
    torch.save(as_insightface(ours), tmp_path / "in.pth")
    found, metadata = converted(tmp_path, tmp_path / "in.pth")
    same(found, ours)
    assert metadata["model"] == "arcface" and metadata["origin"] == "insightface"
    arch = {"variant": "insightface", "depth": 18, "width": 2, "embedding": 6}
    assert json.loads(metadata["arch"]) == arch  # no size: a run takes it from its data
    assert "fresh_head=true" in capsys.readouterr().out


def test_a_file_of_a_wrapped_net(tmp_path):
    ours = tensors(SMALL)
    torch.save({f"module.{name}": tensor for name, tensor in as_insightface(ours).items()}, tmp_path / "in.pth")
    same(converted(tmp_path, tmp_path / "in.pth")[0], ours)


def shared_out(folder, classes, ranks):
    """checkpoint_gpu_<rank>.pt of a run, as save_all_states has them."""
    for rank, part in enumerate(np.array_split(matrix(classes), ranks)):
        optimizer = {"state": {0: {"momentum_buffer": torch.zeros(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
        torch.save(
            {
                "epoch": 3,
                "global_step": 70,
                "state_dict_backbone": as_insightface(tensors(SMALL)),
                "state_dict_softmax_fc": {"weight": torch.from_numpy(part.copy())},
                "state_optimizer": optimizer,
                "state_lr_scheduler": {"base_lrs": [0.1], "last_epoch": 70},
            },
            folder / f"checkpoint_gpu_{rank}.pt",
        )


@pytest.mark.parametrize("rank", [0, 10])
def test_the_classes_of_insightface_are_joined(tmp_path, rank):
    """In the order of numbers, where 10 comes after 9."""
    shared_out(tmp_path, 25, 11)
    found, metadata = converted(tmp_path, tmp_path / f"checkpoint_gpu_{rank}.pt", "--head", "-o", "num_classes=25")
    same(found, {**tensors(SMALL), spec.HEAD_WEIGHT: matrix(25)})
    assert json.loads(metadata["arch"])["num_classes"] == 25


def test_without_being_asked_nothing_is_joined(tmp_path):
    shared_out(tmp_path, 5, 2)
    same(converted(tmp_path, tmp_path / "checkpoint_gpu_1.pt")[0], tensors(SMALL))


def test_the_digest_is_of_all_files(tmp_path):
    shared_out(tmp_path, 5, 2)
    digests = []
    for change in (b"", b" "):
        with open(tmp_path / "checkpoint_gpu_1.pt", "ab") as file:
            file.write(change)
        for more in ((), ("--head",)):
            digests.append(converted(tmp_path, tmp_path / "checkpoint_gpu_0.pt", *more)[1]["sha256"])
            os.remove(tmp_path / "out.safetensors")
    alone, joined, alone_again, joined_again = digests
    assert alone == alone_again == files.sha256(str(tmp_path / "checkpoint_gpu_0.pt"))
    assert len({alone, joined, joined_again}) == 3


def test_a_missing_rank_of_insightface(tmp_path, capsys):
    shared_out(tmp_path, 25, 3)
    os.remove(tmp_path / "checkpoint_gpu_1.pt")
    assert "the file of rank 1 is missing" in refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head")
    shared_out(tmp_path, 25, 3)
    os.remove(tmp_path / "checkpoint_gpu_2.pt")  # which nothing tells of but the number of classes
    text = refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head", "-o", "num_classes=25")
    assert "head.weight: (17, 6), the net wants (25, 6)" in text


@pytest.mark.parametrize(
    "content, says",
    [
        ({"state_dict_backbone": {}}, "holds no state_dict_backbone with tensors"),
        ({"epoch": 3}, "holds no state_dict_backbone with tensors"),
        ({"state_dict_backbone": as_insightface(tensors(SMALL))}, "holds no state_dict_softmax_fc with tensors"),
        (
            {
                "state_dict_backbone": as_insightface(tensors(SMALL)),
                "state_dict_softmax_fc": {"weight": torch.zeros(3)},
            },
            "holds no rows of a class matrix",
        ),
    ],
)
def test_a_checkpoint_of_something_else(tmp_path, capsys, content, says):
    torch.save(content, tmp_path / "checkpoint_gpu_0.pt")
    assert says in refused(capsys, tmp_path, tmp_path / "checkpoint_gpu_0.pt", "--head")


def test_a_net_alone_has_no_classes(tmp_path, capsys):
    torch.save(as_insightface(tensors(SMALL)), tmp_path / "in.pth")
    assert "--head: there is no class matrix" in refused(capsys, tmp_path, tmp_path / "in.pth", "--head")
    assert "missing:\n    head.weight" in refused(capsys, tmp_path, tmp_path / "in.pth", "-o", "num_classes=5")


def test_a_variable_of_paddle():
    slope = drawn("prelu.weight", (1,))
    assert variable(slope) == SAVED
    assert variable(drawn("conv1.weight", (64, 3, 3, 3)))[: len(SAVED_HEAD)] == SAVED_HEAD


@pytest.mark.parametrize(
    "array", [np.float32([[1, 2, 3], [4, 5, 6]]), np.int64([7]), np.float16([0.5, -2]), np.zeros((200, 2), np.float32)]
)
def test_variables_are_read(tmp_path, array):
    (tmp_path / "x").write_bytes(variable(array))
    found = paddle_variable.read(str(tmp_path / "x"))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == (np.float32 if array.dtype == np.float16 else array.dtype)


def test_a_variable_with_levels_of_detail(tmp_path):
    plain = variable(np.float32([1, 2]))
    levels = struct.pack("<Q", 2) + struct.pack("<Q", 16) + bytes(16) + struct.pack("<Q", 8) + bytes(8)
    (tmp_path / "x").write_bytes(plain[:4] + levels + plain[12:])
    np.testing.assert_array_equal(paddle_variable.read(str(tmp_path / "x")), [1, 2])


@pytest.mark.parametrize(
    "content, says",
    [
        (SAVED[:-1], "buffer size must be"),
        (SAVED[:-4], "0 numbers for a tensor of shape"),
        (SAVED[:22], "it is cut"),
        (SAVED[:9], "unpack"),
        (b"", "unpack"),
        (b"\1" + SAVED[1:], "version 1"),
        (SAVED + bytes(4), "2 numbers"),
        (SAVED.replace(b"\x08\x05", b"\x08\x07"), "tensors of type 7"),
        (b"\x80\x02cos\nsystem\n" + bytes(40), "version"),
        (SAVED[:4] + b"\1" + bytes(7) + b"\xff" * 8 + SAVED[12:], ""),
        (SAVED[:12] + b"\2" + SAVED[13:], "version 2"),
    ],
    ids=range(11),
)
def test_files_that_are_no_variables(tmp_path, content, says):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=f"x is no whole variable of Paddle .*{says}"):
        paddle_variable.read(str(tmp_path / "x"))
    with pytest.raises(UserError, match="no such file|No such file"):
        paddle_variable.read(str(tmp_path / "y"))


META = {"pretrain_nranks": 3, "emb_dim": 6, "num_classes": 10}


def columns(classes, ranks):
    """As PLSC shares classes out: as many on every rank but the last."""
    each = -(-classes // ranks)
    return [np.ascontiguousarray(matrix(classes)[k * each : (k + 1) * each].T) for k in range(ranks)]


def test_a_folder_of_plsc(tmp_path, capsys):
    ours = tensors(PLSC)
    as_plsc(tmp_path / "19", ours, columns(10, 3), META)
    found, metadata = converted(tmp_path, tmp_path / "19")
    same(found, ours)
    assert json.loads(metadata["arch"]) == {"variant": "plsc", "depth": 18, "width": 2, "embedding": 6}
    assert metadata["file"] == "19" and "-o data.normalisation=plsc" in capsys.readouterr().out


def test_the_classes_of_plsc_are_joined(tmp_path):
    ours = tensors(PLSC)
    as_plsc(tmp_path / "19", ours, columns(10, 3), META)
    same(converted(tmp_path, tmp_path / "19", "--head")[0], {**ours, spec.HEAD_WEIGHT: matrix(10)})


def test_the_classes_of_one_gpu(tmp_path):
    ours = tensors(PLSC)
    as_plsc(tmp_path / "19", ours, meta={"pretrain_nranks": 1, "emb_dim": 6, "num_classes": 4})
    (tmp_path / "19" / "final_fc_w_0").write_bytes(variable(np.ascontiguousarray(matrix(4).T)))
    same(converted(tmp_path, tmp_path / "19", "--head")[0], {**ours, spec.HEAD_WEIGHT: matrix(4)})


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda folder: os.remove(folder / "dist@arcface@rank@00001.w_0"), "the file of rank 1 is missing"),
        (lambda folder: os.remove(folder / "dist@arcface@rank@00002.w_0"), "tells of 3 ranks, but there are the"),
        (
            lambda folder: (folder / "meta.json").write_text(json.dumps({**META, "num_classes": 11})),
            "tells of 11 classes, the files hold 10",
        ),
        (lambda folder: (folder / "meta.json").write_text("{}"), "meta.json is not as PLSC writes it"),
        (lambda folder: (folder / "dist@arcface@rank@00001.b_0").write_bytes(SAVED), "classes with biases"),
        (
            lambda folder: (folder / "dist@arcface@rank@00001.w_0").write_bytes(variable(np.zeros((5, 4), np.float32))),
            "their shapes are (4, 5), (4, 6)",
        ),
        (lambda folder: (folder / "batch_norm_3.w_1").write_bytes(SAVED[:20]), "batch_norm_3.w_1 is no whole variable"),
        (lambda folder: os.remove(folder / "batch_norm_3.w_1"), "missing:\n    layer1.0.bn3.running_mean"),
        (lambda folder: (folder / "fc_1.w_0").write_bytes(SAVED), "unexpected:\n    fc_1.w_0"),
        (lambda folder: os.remove(folder / "conv2d_0.w_0"), "holds no variables of PLSC"),
    ],
)
def test_damaged_folders_of_plsc(tmp_path, capsys, change, says):
    as_plsc(tmp_path / "19", tensors(PLSC), columns(10, 3), META)
    change(tmp_path / "19")
    assert says in refused(capsys, tmp_path, tmp_path / "19", "--head")


@torch.no_grad()
def embeddings(arch, values, images):
    net = Model(arch)
    result = net.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in values.items()}, False)
    assert not result.unexpected_keys and all(name.endswith(names.COUNTER) for name in result.missing_keys)
    return net.double().eval()(torch.from_numpy(images)).numpy()


def test_the_other_variant_is_the_same_function(tmp_path, capsys):
    """Of pixels: each variant sees them as its own training has them."""
    ours = tensors(PLSC)
    as_plsc(tmp_path / "19", ours)
    moved, metadata = converted(tmp_path, tmp_path / "19", "-o", "variant=insightface")
    pixels = np.random.default_rng(4).integers(0, 256, (3, 3, 20, 20)).astype(np.float64)
    before = embeddings(PLSC, ours, (pixels - 127.5) / 128)
    after = embeddings(SMALL, moved, (pixels - 127.5) / 127.5)
    assert relative(after, before) <= 1e-6
    assert json.loads(metadata["arch"])["variant"] == "insightface"
    assert "normalisation" not in capsys.readouterr().out
    for part in ("conv1.weight", "bn1.running_var", "layer1.0.prelu.weight"):  # each correction matters
        left = {**moved, part: np.broadcast_to(ours[part], moved[part].shape)}
        if not part.endswith("prelu.weight"):
            assert relative(embeddings(SMALL, left, (pixels - 127.5) / 127.5), before) > 1e-5


def test_plscs_own_net_in_the_other_variant():
    """PLSC's numbers, from insightface's arithmetic."""
    arch = spec.Arch(**CASES["plsc50"])
    moved = faces.to_insightface(tensors(arch))
    moved["conv1.weight"] = moved["conv1.weight"] * np.float32(128 / 127.5)  # pictures() are normalised already
    found = embeddings(replace(arch, variant="insightface"), moved, pictures()[:2].astype(np.float64))
    assert relative(found, recorded()["plsc50/eval"]) <= TOLERANCE


def test_a_file_of_plsc2(tmp_path):
    ours = tensors(SMALL)
    as_plsc2(tmp_path / "latest.pdparams", ours)
    found, metadata = converted(tmp_path, tmp_path / "latest.pdparams")
    same(found, ours)
    assert metadata["origin"] == "plsc2"


def test_the_classes_of_plsc2_are_joined(tmp_path, capsys):
    ours = tensors(SMALL)
    as_plsc2(tmp_path / "epoch_1.pdparams", ours)
    as_plsc2(tmp_path / "epoch_12.pdparams", ours)  # another one, whose name begins alike
    for rank, part in enumerate(np.array_split(matrix(7), 3)):
        as_plsc2(tmp_path / f"epoch_1_rank{rank}.pdparams", {}, part)
        as_plsc2(tmp_path / f"epoch_12_rank{rank}.pdparams", {}, part + 1)
    same(converted(tmp_path, tmp_path / "epoch_1.pdparams", "--head")[0], {**ours, spec.HEAD_WEIGHT: matrix(7)})
    os.remove(tmp_path / "out.safetensors")
    os.remove(tmp_path / "epoch_1_rank0.pdparams")
    assert "the file of rank 0 is missing" in refused(capsys, tmp_path, tmp_path / "epoch_1.pdparams", "--head")


def test_the_classes_of_plsc2_on_one_gpu(tmp_path):
    ours = tensors(SMALL)
    as_plsc2(tmp_path / "in.pdparams", ours, matrix(4))
    same(converted(tmp_path, tmp_path / "in.pdparams")[0], ours)
    os.remove(tmp_path / "out.safetensors")
    same(converted(tmp_path, tmp_path / "in.pdparams", "--head")[0], {**ours, spec.HEAD_WEIGHT: matrix(4)})


@pytest.mark.parametrize("arch", [replace(SMALL, num_classes=5), replace(PLSC, num_classes=5, depth=34)])
def test_a_canonical_file_keeps_its_classes(tmp_path, arch):
    ours = {**tensors(arch), spec.HEAD_WEIGHT: matrix(5)}
    files.write(str(tmp_path / "in.safetensors"), ours, {"classes": "[]"})
    found, metadata = converted(tmp_path, tmp_path / "in.safetensors")
    same(found, ours)
    assert metadata["origin"] == "canonical" and metadata["classes"] == "[]"


@pytest.mark.parametrize(
    "more, says",
    [
        (("-o", "depth=34"), "does not fill the net"),
        (("-o", "variant=plsc"), "prelu.weight: (2,), the net wants (1,)"),
        (("-o", "embedding=7"), "of another shape"),
        (("-o", "size=64"), "fc.weight: (6, 64), the net wants (6, 256)"),
        (("-o", "depth=51"), "expected one of 18, 34, 50, 100, 101, 152, 200"),
        (("-o", "crop=1"), "for a arcface give"),
        (("--to", "torchvision"), "--to torchvision"),
        (("--model", "resnet"), "does not fill the net"),
    ],
)
def test_what_the_user_states_must_hold(tmp_path, capsys, more, says):
    torch.save(as_insightface(tensors(SMALL)), tmp_path / "in.pth")
    assert says in refused(capsys, tmp_path, tmp_path / "in.pth", *more)
