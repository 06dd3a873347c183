"""Foreign weights: renaming is complete and exact, what does not fit is refused and leaves no file."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from data.errors import UserError
from tests.helpers.paths import ROOT
from tools import convert
from zoo.models.tsm import torch as tsm
from zoo.models.tsm.spec import Arch
from zoo.weights import files, imagenet, layouts, names
from zoo.weights.match import match

GOLDEN = ROOT / "tests" / "golden"
ORIGINS = {
    "mit_blockres": "mit",
    "mit_block": "mit",
    "mit_nonlocal_tpool": "mit",
    "torchvision": "torchvision",
    "mmaction2_tpool": "mmaction2",
    "mmaction2_block": "mmaction2",
    "mmaction2_nonlocal": "mmaction2",
}


def listed(which):
    """Name -> shape as another project's state dict has them."""
    rows = [line.split() for line in (GOLDEN / f"names_{which}.txt").read_text().splitlines() if line[0] != "#"]
    return {name: () if shape == "scalar" else tuple(map(int, shape.split("x"))) for name, shape in rows}


def marked(shapes):
    """Cheap arrays that can be told apart: constant k for the k-th name."""
    return {name: np.broadcast_to(np.float32(k), shape) for k, (name, shape) in enumerate(shapes.items())}


def shapes_of(**options):
    with torch.device("meta"):
        state = tsm.Model(Arch(num_classes=7, **options)).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items() if not name.endswith(names.COUNTER)}


def small(classes=3):
    """A state dict in torchvision's names, of a ResNet-18 with 2 channels in the stem."""
    torch.manual_seed(1)
    return {
        name: torch.randn(tensor.shape) if tensor.is_floating_point() else tensor
        for name, tensor in tsm.Model(Arch(depth=18, num_classes=classes, width=2)).state_dict().items()
    }


def run(source, target, *more):
    return convert.main([str(source), str(target), *more])


def refused(capsys, source, target, *more):
    """The message of a conversion that must fail and leave nothing."""
    before = sorted(os.listdir(target.parent))
    assert run(source, target, *more) == 2
    assert sorted(os.listdir(target.parent)) == before
    output = capsys.readouterr()
    assert output.err.startswith("error: ")
    return output.out + output.err


@pytest.mark.parametrize("which, origin", ORIGINS.items())
def test_names_of_other_projects_map_completely(which, origin):
    theirs = marked(listed(which))
    assert names.detect(theirs) == origin
    ours = layouts.to_canonical(theirs, origin)
    report = match(ours, shapes_of(non_local="nonlocal" in which))
    assert report.complete, str(report)
    for old, array in theirs.items():
        if not old.endswith(names.COUNTER):
            assert ours[names.canonical_name(old, origin)] is array
    added = len(ours) - sum(not name.endswith(names.COUNTER) for name in theirs)
    assert added == (5 if which == "mmaction2_nonlocal" else 0)  # biases, all zero
    if origin == "mmaction2":
        assert not any(array.any() for name, array in ours.items() if name.endswith("nl.out.bias"))


@pytest.mark.parametrize(
    "old, new",
    [
        ("module.base_model.layer2.net.0.block.conv1.net.weight", "layer2.0.conv1.weight"),
        ("module.base_model.layer2.0.nl.g.0.weight", "layer2.0.nl.g.weight"),
        ("module.base_model.layer2.0.nl.theta.bias", "layer2.0.nl.theta.bias"),
        ("base_model.layer3.4.nl.phi.0.bias", "layer3.4.nl.phi.bias"),
        ("base_model.layer3.4.nl.W.0.weight", "layer3.4.nl.out.weight"),
        ("base_model.layer3.4.nl.W.1.running_var", "layer3.4.nl.bn.running_var"),
        ("module.new_fc.bias", "fc.bias"),
        ("base_model.fc.weight", "fc.weight"),
    ],
)
def test_names_of_mit(old, new):
    assert names.canonical_name(old, "mit") == new


@pytest.mark.parametrize(
    "old, new",
    [
        ("backbone.conv1.conv.weight", "conv1.weight"),
        ("backbone.conv1.bn.running_mean", "bn1.running_mean"),
        ("backbone.layer1.0.conv1.conv.net.weight", "layer1.0.conv1.weight"),
        ("backbone.layer2.net.3.conv3.bn.bias", "layer2.3.bn3.bias"),
        ("backbone.layer2.0.block.downsample.conv.weight", "layer2.0.downsample.0.weight"),
        ("backbone.layer2.0.block.downsample.bn.weight", "layer2.0.downsample.1.weight"),
        ("backbone.layer2.0.non_local_block.phi.0.conv.bias", "layer2.0.nl.phi.bias"),
        ("backbone.layer2.0.non_local_block.conv_out.bn.weight", "layer2.0.nl.bn.weight"),
        ("cls_head.fc_cls.weight", "fc.weight"),
    ],
)
def test_names_of_mmaction2(old, new):
    assert names.canonical_name(old, "mmaction2") == new


def test_to_torchvision_has_exactly_its_names():
    shapes = listed("torchvision")
    theirs = layouts.to_torchvision(layouts.to_canonical(marked(shapes), "torchvision"))
    assert {name: array.shape for name, array in theirs.items()} == shapes
    counter = theirs["layer1.0.downsample.1.num_batches_tracked"]
    assert counter.dtype == np.int64 and counter == 0


def test_to_torchvision_refuses_non_local_blocks():
    with pytest.raises(UserError, match="non-local"):
        layouts.to_torchvision({"layer2.0.nl.g.weight": np.zeros(1, np.float32)})


def test_two_names_that_become_one_are_refused():
    with pytest.raises(UserError, match="base_model.fc.weight and new_fc.weight would both become fc.weight"):
        layouts.to_canonical(marked({"base_model.fc.weight": (1,), "new_fc.weight": (1,)}), "mit")


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="no known origin"):
        names.detect(["res2a.conv0._conv.weight"])


def test_report_caps_its_lists():
    report = match({"a": np.zeros(2), "x": np.zeros(1)}, {"a": (3,), **{f"b{i}": (1,) for i in range(12)}})
    assert not report.complete and report.matched == () and report.unexpected == ("x",)
    assert report.wrong_shape == (("a", (2,), (3,)),)
    text = str(report)
    assert "12 missing" in text and "b9" in text and "b10" not in text and "... and 2 more" in text
    assert "a: (2,), the net wants (3,)" in text


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_16_bit_floats_are_read_as_float32(tmp_path, half, suffix):
    values = torch.tensor([[1.5, -0.1], [3e-5, 100.0]], dtype=half)
    path = str(tmp_path / f"half{suffix}")
    (save_file if suffix == ".safetensors" else torch.save)({"a": values}, path)
    array = files.read(path)[0]["a"]
    assert array.dtype == np.float32 and np.array_equal(array, values.float().numpy())


def test_write_keeps_values_scalars_and_metadata(tmp_path):
    path = str(tmp_path / "a.safetensors")
    tensors = {"transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T, "scalar": np.zeros((), np.int64)}
    files.write(path, tensors, {"origin": "here"})
    back, metadata = files.read(path)
    assert metadata == {"origin": "here"} and back["scalar"].shape == ()
    assert np.array_equal(back["transposed"], tensors["transposed"])
    assert os.listdir(tmp_path) == ["a.safetensors"]
    with pytest.raises(UserError, match="exists already"):
        files.write(path, tensors)


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), files.aside(str(tmp_path / "a")) as temporary:
        Path(temporary).write_bytes(b"half")
        1 / 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.safetensors", b"\x10\0\0\0\0\0\0\0{}"),
        ("b.safetensors", b""),
        ("c.pth", b"not a pickle"),
        ("d.zip", b""),
    ],
)
def test_broken_files_are_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(str(path))):
        files.read(str(path))


@pytest.mark.parametrize("content", [torch.zeros(2), {"a": 1.0}, {}, {3: torch.zeros(2)}])
def test_a_pickle_without_named_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(UserError, match="save a state_dict"):
        files.read(str(tmp_path / "a.pth"))


def test_convert_a_checkpoint_of_mit(tmp_path, capsys):
    state = small()
    theirs = {}
    for name, tensor in state.items():
        name = re.sub(r"^(layer.*)\.conv1\.", r"\1.conv1.net.", name)
        theirs["module." + (f"new_{name}" if name.startswith("fc.") else f"base_model.{name}")] = tensor
    torch.save({"epoch": 50, "arch": "resnet18", "state_dict": theirs, "optimizer": {}}, tmp_path / "mit.pth.tar")
    assert run(tmp_path / "mit.pth.tar", tmp_path / "out.safetensors", "-o", "num_classes=3") == 0
    tensors, metadata = files.read(str(tmp_path / "out.safetensors"))
    assert metadata["origin"] == "mit" and metadata["sha256"] == files.sha256(str(tmp_path / "mit.pth.tar"))
    assert "mit's names; tsm with depth 18, num_classes 3, width 2" in capsys.readouterr().out
    expected = {name: tensor for name, tensor in state.items() if not name.endswith(names.COUNTER)}
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[name], tensor.numpy()) for name, tensor in expected.items())


@pytest.mark.parametrize("target", ["back.pth", "back.safetensors"])
def test_there_and_back_to_torchvision(tmp_path, target):
    state = small()
    torch.save(state, tmp_path / "tv.pth")
    assert run(tmp_path / "tv.pth", tmp_path / "ours.safetensors") == 0
    assert run(tmp_path / "ours.safetensors", tmp_path / target, "--to", "torchvision") == 0
    back, _ = files.read(str(tmp_path / target))
    assert back.keys() == state.keys()
    assert all(np.array_equal(back[name], tensor.numpy()) for name, tensor in state.items())


def test_a_missing_tensor_is_refused(tmp_path, capsys):
    state = small()
    del state["layer2.1.bn1.running_var"]
    torch.save(state, tmp_path / "a.pth")
    text = refused(capsys, tmp_path / "a.pth", tmp_path / "out.safetensors")
    assert "1 missing:\n    layer2.1.bn1.running_var" in text


def test_an_extra_tensor_is_refused(tmp_path, capsys):
    torch.save({**small(), "aux.weight": torch.zeros(2)}, tmp_path / "a.pth")
    assert "1 unexpected:\n    aux.weight" in refused(capsys, tmp_path / "a.pth", tmp_path / "out.safetensors")


def test_a_wrong_shape_is_refused(tmp_path, capsys):
    torch.save({**small(), "layer1.0.conv1.weight": torch.zeros(2, 2, 1, 1)}, tmp_path / "a.pth")
    text = refused(capsys, tmp_path / "a.pth", tmp_path / "out.safetensors")
    assert "layer1.0.conv1.weight: (2, 2, 1, 1), the net wants (2, 2, 3, 3)" in text


@pytest.mark.parametrize(
    "change, says",
    [
        ({"fc.bias": torch.zeros(3, dtype=torch.int64)}, "fc.bias is int64"),
        ({"fc.bias": torch.zeros(3, dtype=torch.float64)}, "fc.bias is float64"),
    ],
)
def test_other_types_are_refused(tmp_path, capsys, change, says):
    torch.save({**small(), **change}, tmp_path / "a.pth")
    assert says in refused(capsys, tmp_path / "a.pth", tmp_path / "out.safetensors")


@pytest.mark.parametrize(
    "more, says",
    [
        (["-o", "num_classes=5"], "of another shape"),
        (["-o", "depth=51"], "depth=51"),
        (["-o", "dropout=0"], "-o dropout=0"),
        (["-o", "non_local=true"], "layer3 block 4"),
    ],
)
def test_what_the_user_states_must_hold(tmp_path, capsys, more, says):
    torch.save(small(), tmp_path / "a.pth")
    assert says in refused(capsys, tmp_path / "a.pth", tmp_path / "out.safetensors", "--model", "tsm", *more)


def test_a_net_without_a_layer_is_refused(tmp_path, capsys):
    torch.save({name: tensor for name, tensor in small().items() if "layer4.1" not in name}, tmp_path / "a.pth")
    assert "(2, 2, 2, 1) blocks" in refused(capsys, tmp_path / "a.pth", tmp_path / "out.safetensors")


def test_an_existing_file_stays(tmp_path, capsys):
    torch.save(small(), tmp_path / "a.pth")
    (tmp_path / "out.safetensors").write_text("mine")
    assert "exists already" in refused(capsys, tmp_path / "a.pth", tmp_path / "out.safetensors")
    assert (tmp_path / "out.safetensors").read_text() == "mine"


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_malicious_pickle_is_not_executed(tmp_path):
    """As a user would run it, from another folder: exit code 2, one line, no file."""
    trace = tmp_path / "executed"
    torch.save({**small(), "fc.bias": Malicious(str(trace))}, tmp_path / "a.pth")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "convert.py"), "a.pth", "out.safetensors"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and os.listdir(tmp_path) == ["a.pth"]
    assert done.stderr.startswith("error: a.pth is not read") and "Traceback" not in done.stderr
    torch.load(tmp_path / "a.pth", weights_only=False)  # the trap does work
    assert trace.exists()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small file in place of torchvision's ResNet-18: its bytes, its name and a folder to keep it in."""
    torch.save(small(), tmp_path / "published.pth")
    content = (tmp_path / "published.pth").read_bytes()
    name = f"resnet18-{files.sha256(str(tmp_path / 'published.pth'))[:8]}.pth"
    monkeypatch.setitem(imagenet.FILES, "plain", {18: name})
    monkeypatch.setattr(imagenet, "download", lambda url, path: pytest.fail(f"fetched {url}"))
    return content, name, tmp_path / "weights"


def test_imagenet_converts_a_placed_file_once(published):
    content, name, folder = published
    folder.mkdir()
    (folder / name).write_bytes(content)
    path, origin = imagenet.find(18, str(folder))
    assert path == str(folder / "resnet18_imagenet.safetensors") and origin == "torchvision IMAGENET1K_V1"
    tensors, metadata = files.read(path)
    assert np.array_equal(tensors["fc.weight"], small()["fc.weight"].numpy())
    assert not any(key.endswith(names.COUNTER) for key in tensors)
    assert metadata["file"] == name and metadata["sha256"].startswith(name[9:17]) and metadata["url"].endswith(name)
    (folder / name).unlink()
    assert imagenet.find(18, str(folder)) == (path, origin)


def test_imagenet_fetches(published, monkeypatch):
    content, name, folder = published
    urls = []
    monkeypatch.setattr(imagenet, "download", lambda url, path: (urls.append(url), Path(path).write_bytes(content)))
    imagenet.find(18, str(folder))
    assert urls == [f"https://download.pytorch.org/models/{name}"]
    assert sorted(os.listdir(folder)) == [name, "resnet18_imagenet.safetensors"]


def test_imagenet_keeps_no_damaged_download(published, monkeypatch):
    _, name, folder = published
    monkeypatch.setattr(imagenet, "download", lambda url, path: Path(path).write_bytes(b"cut"))
    with pytest.raises(UserError, match="SHA-256"):
        imagenet.find(18, str(folder))
    assert os.listdir(folder) == []


def test_imagenet_refuses_a_placed_file_with_another_hash(published):
    content, name, folder = published
    folder.mkdir()
    (folder / name).write_bytes(content + b"x")
    with pytest.raises(UserError, match=f"{name} is damaged"):
        imagenet.find(18, str(folder))
    assert os.listdir(folder) == [name]


def test_imagenet_without_network_says_what_to_place_where(published, monkeypatch):
    _, name, folder = published

    def unreachable(url, path):
        raise OSError("no route to host")

    monkeypatch.setattr(imagenet, "download", unreachable)
    with pytest.raises(UserError) as caught:
        imagenet.find(18, str(folder))
    for part in (f"https://download.pytorch.org/models/{name}", str(folder / name), "-o model.pretrained=null"):
        assert part in str(caught.value)
    assert os.listdir(folder) == []


def test_imagenet_names_a_broken_canonical_file(published):
    folder = published[2]
    folder.mkdir()
    (folder / "resnet18_imagenet.safetensors").write_bytes(b"broken")
    with pytest.raises(UserError, match="no whole safetensors"):
        imagenet.find(18, str(folder))
