"""Weights by name: the table, and small files in place of the published ones, from a server on this host."""

import hashlib
import io
import json
import multiprocessing
import os
import re

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import zoo
from tests.helpers.cli import call_zoo
from tests.helpers.server import serving
from tests.zoo.weights.state_dicts import as_mmseg, small_deeplab, small_resnet
from zoo.config import loader
from zoo.data.errors import UserError
from zoo.finetune import recipe
from zoo.models import load_spec, named
from zoo.run import hub, trained
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.weights import files, layouts, recorded, registry
from zoo.weights.names import ORIGINS

RESNET, SCENES = "resnet18.tv_in1k_v1", "deeplabv3plus_r50.mmseg_cityscapes"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of small files in place of two published ones; ZOO_HOME is tmp_path."""
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    small = {
        RESNET: (18, layouts.to_torchvision(small_resnet(classes=1000))),
        SCENES: (18, as_mmseg(small_deeplab(num_classes=19))),
    }
    entries = {}
    with serving() as found:
        for name, (depth, tensors) in small.items():
            buffer = io.BytesIO()
            torch.save({key: torch.from_numpy(np.array(array)) for key, array in tensors.items()}, buffer)
            file = f"files/{name.replace('.', '_')}-{hashlib.sha256(buffer.getvalue()).hexdigest()[:8]}.pth"
            found.files[file] = buffer.getvalue()
            entry = registry.find(name)
            entries[name] = entry._replace(hosts=[f"{found.url}lost/", found.url], file=file, depth=depth, mib=None)
        backbone = registry.find("resnet50_v1c.mmseg_in1k", is_backbone=True)
        monkeypatch.setattr(registry, "table", lambda: {**entries, backbone.name: backbone})
        yield found


def downloads(server):
    return [path for path, _ in server.requests if not path.startswith("lost/")]


def test_the_table_is_whole():
    """Names, models, recipes and files of all entries are what the code takes them for."""
    for name, entry in registry.table().items():
        assert re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", name) and entry.origin in ORIGINS
        assert (entry.recipe or entry.variant) and entry.licenses.keys() == {"code", "weights", "data"}
        assert all(url.startswith("https://") and url.endswith((".pth", ".tar.gz")) for url in entry.urls)
        assert bool(entry.sha256) == (name.split(".")[1] not in ("paddleseg_in1k", "mit_k400"))
        assert (entry.metric is None or 50 < entry.metric < 90) and entry.protocol
        if entry.recipe:
            base, model = loader.read(loader.find_recipe(entry.recipe)), named.find(entry.model)
            assert base["model.name"].value == model.model and model.options == {"depth": entry.depth}
            load_spec(model.model).Arch(depth=entry.depth, **entry.options)
    paths = [registry.paths(entry)[0] for entry in registry.table().values()]
    assert len(set(paths)) == len(paths)


def test_weights_by_name_are_those_of_the_file(server):
    tensors = zoo.numpy_weights(RESNET, pretrained=True, width=2)
    assert all(np.array_equal(array, tensors[name]) for name, array in small_resnet(classes=1000).items())
    other = zoo.numpy_weights("resnet18", pretrained=RESNET, width=2, num_classes=3, seed=4)
    assert np.array_equal(other["conv1.weight"], tensors["conv1.weight"]) and other["fc.bias"].shape == (3,)
    initial = zoo.numpy_weights(RESNET, width=2)
    assert np.array_equal(initial["conv1.weight"], zoo.numpy_weights("resnet18", width=2)["conv1.weight"])
    assert len(downloads(server)) == 1
    assert zoo.list_models("resnet*", pretrained=True) == [RESNET] and "resnet18" in zoo.list_models()


def test_a_record_makes_them_a_checkpoint(server, tmp_path):
    found = trained.read(SCENES, None, "cpu", [])
    assert found.path == str(tmp_path / "weights" / SCENES) and found.arch.output_stride == 8
    assert found.dataset == "cityscapes" and found.cfg.model.pretrained is None and found.cfg.upstream is None
    assert found.class_names[:2] == ("road", "sidewalk") and len(found.class_names) == 19
    expected = small_deeplab(num_classes=19)
    assert found.tensors.keys() == expected.keys()
    assert all(np.array_equal(found.tensors[name], array) for name, array in expected.items())
    request = resolve_recipe(Options(None, weights=RESNET, eval_only=True))
    assert request.config.weights == str(tmp_path / "weights" / RESNET) and request.recipe == RESNET
    assert (request.config.model.num_classes, request.config.data.antialias) == (1000, True)
    metadata = files.read_metadata(f"{request.config.weights}/model.safetensors")
    assert json.loads(metadata["licenses"])["code"] == "BSD-3-Clause" and metadata["weights"] == RESNET
    with open(f"{request.config.weights}/model.safetensors", "ab") as file:
        file.write(b"damage")
    with pytest.raises(UserError, match="model.safetensors is damaged"):
        zoo.numpy_weights(RESNET, pretrained=True, width=2)


def test_settings_of_a_publisher_are_recorded(server, monkeypatch):
    entry = registry.find(RESNET)._replace(data={"eval_size": 288, "eval_resize": 288})
    monkeypatch.setattr(registry, "table", lambda: {RESNET: entry})
    data = trained.read(RESNET, None, "cpu", []).cfg.data
    assert (data.eval_crop, data.short_side) == (288, 288)


@pytest.mark.parametrize("changes", [{"weights": RESNET}, {"overrides": [f"weights={RESNET}"]}])
def test_a_run_starts_from_them_by_name(server, tmp_path, changes):
    request = resolve_recipe(Options("resnet50_imagenet", **changes))
    assert request.config.weights == str(tmp_path / "weights" / RESNET)
    assert (request.config.model.depth, request.config.model.width) == (18, 2)


def test_finetuning_and_predicting_by_name(server, tmp_path, monkeypatch, capsys):
    settled = recipe._of_weights("classify", RESNET, {})
    assert settled["weights"].value == RESNET and settled["model.depth"].value == 18
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save("a.png")
    assert call_zoo("predict", "a.png", "--weights", RESNET, "--device", "cpu") == 0
    assert f"results are in predictions/{RESNET}" in capsys.readouterr().out
    names = trained.read(RESNET, None, "cpu", []).class_names
    assert names[0] == "tench" and names[281] == "tabby" and len(names) == 1000
    row = json.loads((tmp_path / f"predictions/{RESNET}/predictions.jsonl").read_text())
    assert {each["label"] for each in row["predictions"]} < set(names)


def test_a_placed_file_needs_no_network(server, tmp_path):
    entry = registry.find(RESNET)
    content = server.files[entry.file]
    server.files.clear()
    with pytest.raises(UserError) as caught:
        trained.read(RESNET, None, "cpu", [])
    place = re.search(r"Place (\S+) as (\S+)$", str(caught.value))
    assert place[1] == f"{server.url}lost/{entry.file}" and "\n" not in str(caught.value)
    with open(place[2], "wb") as file:
        file.write(content)
    server.requests.clear()
    assert trained.read(RESNET, None, "cpu", []).arch.width == 2 and not server.requests


def test_a_full_disk(server, tmp_path, monkeypatch):
    """While a file is downloaded, then while it is converted: one line, and nothing under the name."""
    entry, folder = registry.find(RESNET)._replace(hosts=[server.url]), tmp_path / "weights"
    os.mkdir(folder)
    os.symlink("/dev/full", f"{registry.paths(entry)[0]}.part")  # of which every write fails
    message = f"{folder}/{RESNET} cannot be written: No space left on device; make room, or set ZOO_HOME to another"
    with pytest.raises(UserError, match=message):
        registry.prepare(entry)
    assert os.listdir(folder) == [".lock"]
    monkeypatch.setattr(registry.loader, "render", lambda _: (_ for _ in ()).throw(OSError(28, os.strerror(28))))
    with pytest.raises(UserError, match=message):
        registry.prepare(entry)
    assert sorted(os.listdir(folder)) == [".lock", os.path.basename(entry.file)]


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "weights").write_text("")
    with pytest.raises(UserError, match="cannot be written: File exists; make room, or set ZOO_HOME"):
        registry.prepare(registry.find(RESNET))


def test_processes_share_a_download(server):
    processes = [multiprocessing.get_context("fork").Process(target=registry.prepare, args=(registry.find(RESNET),))]
    processes += [multiprocessing.get_context("fork").Process(target=registry.prepare, args=(registry.find(RESNET),))]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0] and len(downloads(server)) == 1


def test_names_that_are_not_there(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, message in (
        ("resnet18.tv_in1k_v2", f"there are no published weights resnet18.tv_in1k_v2; did you mean {RESNET}"),
        ("resnet50_v1c.mmseg_in1k", "is a backbone: models that have it start from it with model.pretrained=imagenet"),
        ("nothing", "nothing: there is no such file or folder of weights; zoo weights list shows"),
    ):
        with pytest.raises(UserError, match=message):
            trained.read(name, None, "cpu", [])
    with pytest.raises(UserError, match=f"no published weights resnet18; there are {RESNET}"):
        zoo.create_model("resnet18", pretrained=True)
    with pytest.raises(UserError, match="there are no published weights tsm.k400; zoo weights list shows all"):
        zoo.create_model("tsm.k400")
    os.mkdir(RESNET)  # a folder of the user precedes the table
    assert hub.resolve(RESNET) == RESNET and recorded.read(RESNET) == recorded.NOTHING


def test_the_command(server, tmp_path, capsys):
    assert call_zoo("weights", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *registry.table()] and "yes" not in lines[1].split()
    assert call_zoo("weights", "download", RESNET) == 0
    assert capsys.readouterr().out == f"{tmp_path}/weights/{RESNET}\n"
    assert call_zoo("weights", "list", "resnet*") == 0
    assert "yes" in capsys.readouterr().out.splitlines()[1].split()
    assert call_zoo("weights", "list", "resnet18*") == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["sha256"] == f"begins with {registry.find(RESNET).sha256}, which is checked" and shown["here"]
    assert shown["licenses"]["code"] == "BSD-3-Clause" and shown["metric"] == 69.758
    for words, message in (
        (("list", "vgg*"), "no published weights match vgg*"),
        (("download",), "zoo weights download: name the weights"),
        (("download", "resnet18.tv_in1k"), f"did you mean {RESNET}?"),
    ):
        assert call_zoo("weights", *words) == 2 and message in capsys.readouterr().err
