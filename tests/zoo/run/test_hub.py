"""Checkpoints on the Hugging Face Hub, with a stub in place of the library: folders for repositories."""

import json
import os
import shutil
import sys
import types

import numpy as np
import pytest
import yaml

import zoo
from tests.helpers.cli import call_zoo
from tests.zoo import api_cases
from zoo.data.errors import UserError
from zoo.run import hub, trained
from zoo.weights import recorded

ADDRESS = "hf://me/shapes"


class Library(types.ModuleType):
    """What hub.py calls of the library, with the names of its parameters in version 2.4."""

    def __init__(self, root):
        super().__init__("huggingface_hub")
        self.root, self.calls, self.error = root, [], None

    def HfApi(self):
        return self

    def CommitOperationAdd(self, path_in_repo, path_or_fileobj):
        return path_in_repo, path_or_fileobj

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        self.calls.append(("create", repo_id, private, exist_ok))
        if self.error:
            raise self.error
        os.makedirs(self.root / repo_id, exist_ok=exist_ok)

    def create_commit(self, repo_id, operations, *, commit_message, revision=None):
        self.calls.append(("commit", repo_id, commit_message, revision))
        for name, content in operations:
            if isinstance(content, bytes):
                (self.root / repo_id / name).write_bytes(content)
            else:
                shutil.copy(content, self.root / repo_id / name)

    def snapshot_download(self, repo_id, *, revision=None, allow_patterns=None):
        self.calls.append(("pull", repo_id, revision))
        if self.error:
            raise self.error
        snapshot = self.root / "snapshot"
        shutil.rmtree(snapshot, ignore_errors=True)
        os.mkdir(snapshot)
        for name in {*os.listdir(self.root / repo_id)} & {*allow_patterns}:
            os.symlink(self.root / repo_id / name, snapshot / name)  # as in its cache
        return str(snapshot)


@pytest.fixture
def library(tmp_path, monkeypatch):
    found = Library(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", found)
    return found


@pytest.fixture
def run(tmp_path):
    """A run with a checkpoint and its journal; the folder, and the tensors."""
    path, tensors = api_cases.write_checkpoint(tmp_path / "run")
    step = trained.read(path, None, "cpu", []).record["step"]
    begin = {"metric": "top1", "protocol": "shapes/64", "recipe": "resnet50_demo", "task": "classify", "steps": 9}
    evaluations = [{"event": "eval", "step": step, "accuracy": 0.5, "top1": 0.5, "loss": 1.25}]
    evaluations += [{"event": "eval", "step": step + 1, "accuracy": 0.9, "top1": 0.9, "loss": 0.25}]  # another step's
    events = [{"event": "begin", **begin}, *evaluations]
    folder = os.path.dirname(os.path.dirname(os.path.realpath(path)))
    with open(f"{folder}/events.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({**event, "time": 1.0}) + "\n" for event in events)
    return folder, tensors


def test_pushed_and_pulled(library, run, capsys):
    folder, tensors = run
    assert call_zoo("weights", "push", folder, ADDRESS, "--license", "apache-2.0", "--private") == 0
    card = capsys.readouterr().out
    assert library.calls[0] == ("create", "me/shapes", True, True) and library.calls[1][:2] == ("commit", "me/shapes")
    pushed = library.root / "me/shapes"
    assert sorted(os.listdir(pushed)) == ["README.md", "checkpoint.json", "model.safetensors"]
    assert (pushed / "README.md").read_text() == card
    front = yaml.safe_load(card.split("---")[1])
    assert front == {"library_name": "vision-zoo", "license": "apache-2.0", "tags": ["resnet", "classify"]}
    assert "| top1   | 0.5000 | shapes/64 |\n| loss   | 1.2500 | shapes/64 |\n" in card
    assert f"zoo predict FILE --weights {ADDRESS}\n" in card
    assert not any(str(folder) in (pushed / name).read_text() for name in ("README.md", "checkpoint.json"))
    recipe = yaml.safe_load(json.loads((pushed / "checkpoint.json").read_text())["recipe"])
    assert recipe["model"]["width"] == 8 and not {"out", "root"} & {*recipe, *recipe["data"]}

    found = trained.read(f"{ADDRESS}@v1", None, "cpu", [])
    assert library.calls[-1] == ("pull", "me/shapes", "v1") and found.class_names == tuple(api_cases.CLASSES)
    assert all(np.array_equal(found.tensors[name], array) for name, array in tensors.items())
    assert zoo.numpy_weights("resnet18", pretrained=ADDRESS, width=8).keys() == tensors.keys()


FACES = ["model.width=8", "data.size=32", "model.embedding=16", "data.val_fraction=0.05"]
PATHS = {"root": "/home/me/faces", "train": "/home/me/a.rec", "verification": ["/home/me/lfw.bin"], "cache": "/fast"}


def test_no_path_of_a_machine_is_pushed(library, tmp_path):
    tensors = {**zoo.numpy_weights("iresnet18", width=8, size=32, embedding=16), "head.weight": np.ones((2, 16), "f4")}
    pairs = [*FACES, *(f"data.{key}={json.dumps(value)}" for key, value in PATHS.items()), "out=/home/me/o"]
    path = api_cases.save(tmp_path, "arcface_demo", [*pairs, "weights_dir=/home/me/w"], tensors, ["0", "1"])
    assert "/home/me" not in hub.push(path, ADDRESS, "mit", False)
    text = (library.root / "me/shapes/checkpoint.json").read_text()
    assert not {*PATHS} & {*yaml.safe_load(json.loads(text)["recipe"])["data"]} and "/home/me" not in text
    assert "/home/me" not in (library.root / "me/shapes/model.safetensors").read_bytes().decode("latin1")
    assert trained.read(ADDRESS, None, "cpu", []).cfg.data.root == "datasets/portraits"


def test_a_strangers_paths_are_not_taken(library, run, tmp_path, monkeypatch):
    """Neither by what reads the recipe nor by what reads the record alone; what is unknown may be a path, too."""
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    hub.push(run[0], ADDRESS, "mit", False)
    assert hub.pull(ADDRESS) == str(library.root / "snapshot")  # nothing to leave out
    record = library.root / "me/shapes/checkpoint.json"
    pushed = json.loads(record.read_text())
    recipe = yaml.safe_load(pushed["recipe"])
    recipe["data"] |= {"root": "/etc", "names": "/etc/passwd", "cache": "/home/me/.ssh"}
    record.write_text(json.dumps({**pushed, "recipe": yaml.safe_dump({**recipe, "out": "/home/me"})}))
    for _ in range(2):
        found = trained.read(ADDRESS, None, "cpu", [])
        data = found.cfg.data
        assert (data.root, data.names, data.cache, found.cfg.out) == ("datasets/shapes", None, None, None)
        assert recorded.read(found.path).names is None and found.class_names == tuple(api_cases.CLASSES)
        assert all(np.array_equal(found.tensors[name], array) for name, array in run[1].items())
    assert len(os.listdir(tmp_path / "home/weights/hub")) == 1
    record.write_text(json.dumps({**pushed, "recipe": yaml.safe_dump({**recipe, "secret_path": "/etc"})}))
    with pytest.raises(UserError, match="unknown key secret_path|secret_path: unknown key"):
        hub.pull(ADDRESS)


def test_what_was_damaged_on_the_way(library, run):
    hub.push(run[0], ADDRESS, "mit", False)
    with open(library.root / "me/shapes/model.safetensors", "ab") as file:
        file.write(b"damage")
    with pytest.raises(UserError, match="model.safetensors is damaged"):
        zoo.numpy_weights("resnet18", pretrained=ADDRESS, width=8)
    os.remove(library.root / "me/shapes/checkpoint.json")
    with pytest.raises(UserError, match="hf://me/shapes is no checkpoint .*: it lacks checkpoint.json"):
        hub.pull(ADDRESS)


def test_errors_are_one_line(library, run, tmp_path, monkeypatch, capsys):
    library.error = ConnectionError("Name or service not known\nat length")
    with pytest.raises(UserError) as caught:
        hub.pull(ADDRESS)
    assert str(caught.value) == f"{ADDRESS} cannot be read (Name or service not known); {hub.REMEDY}"
    with pytest.raises(UserError, match=f"{ADDRESS} cannot be written .*; check the address"):
        hub.push(run[0], ADDRESS, "mit", False)
    for address in ("hf://me", "hf://me/a/b", "hf://me/a@", "me/shapes"):
        with pytest.raises(UserError, match="expected hf://OWNER/NAME"):
            hub.push(run[0], address, "mit", False)
    with pytest.raises(UserError, match="m.onnx is an exported model; push the checkpoint"):
        hub.push("m.onnx", ADDRESS, "mit", False)
    with pytest.raises(UserError, match="has no checkpoint.json"):
        hub.push(str(tmp_path), ADDRESS, "mit", False)
    assert call_zoo("weights", "push", run[0]) == 2 and "name a run and an address" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="huggingface_hub is not installed here: pip install "):
        hub.pull(ADDRESS)


def test_a_checkpoint_without_a_journal(library, run):
    os.remove(f"{run[0]}/events.jsonl")
    assert "Not evaluated." in hub.push(run[0], ADDRESS, "mit", False)
