"""zoo/parity/recording.py without a framework."""

import importlib.util
import os
import sys
from collections import OrderedDict

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.parity import recording
from zoo.parity.recording import Recorder
from zoo.run.stopping import BadSampleTracker


def load(path, text):
    """Import a file of a user."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


BLOCKS = """
class Layer:
    def __call__(self, recorder, name):
        recorder.enter(name, self, [])
        recorder.leave([])
"""
MODEL = """
class Model:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, recorder):
        recorder.enter("", self, [])
        self.layer(
            recorder, "layer"
        )
        self.again(recorder)
        recorder.leave([])

    def again(self, recorder):
        self.layer(recorder, "layer")
"""


@pytest.fixture
def user_model(tmp_path):
    """A model in two files, its files' paths."""
    blocks, model = load(tmp_path / "user_blocks.py", BLOCKS), load(tmp_path / "user_model.py", MODEL)
    yield model.Model(blocks.Layer()), str(tmp_path / "user_model.py"), str(tmp_path / "user_blocks.py")
    del sys.modules["user_blocks"], sys.modules["user_model"]


def test_call_sites_are_the_innermost_line_of_each_file(user_model):
    model, model_path, blocks_path = user_model
    recorder = Recorder({"": model, "layer": model.layer}, "pass", lambda *_: None)
    model(recorder)
    assert [(call.name, call.span) for call in recorder.calls] == [("", (1, 6)), ("layer", (2, 3)), ("layer", (4, 5))]
    assert [call.call_sites for call in recorder.calls] == [
        (f"{model_path}:7",),
        (f"{blocks_path}:4", f"{model_path}:8"),
        (f"{blocks_path}:4", f"{model_path}:15"),
    ]


def test_files_are_of_the_class_and_of_what_creates_it(user_model):
    model, model_path, blocks_path = user_model
    modules = {"": model, "layer": model.layer, "layer.inner": OrderedDict(), "list": [], "list.0": model.layer}
    found = {name: recording.source_files(modules, name) for name in modules}
    assert found == {
        "": (model_path,),
        "layer": (model_path, blocks_path),
        "layer.inner": (blocks_path,),  # a class of Python or of an installed package has no file
        "list": (model_path,),
        "list.0": (model_path, blocks_path),  # the list is no class of the user's
    }


def test_files_of_the_project_are_relative():
    assert recording.class_file(BadSampleTracker) == "" and recording.class_file(object()) == ""
    assert recording.class_file(BadSampleTracker([], print)) == "zoo/run/stopping.py"
    assert recording.relative(os.path.join(ROOT, "zoo", "..", "zoo", "a.py")) == "zoo/a.py"
    assert recording.relative(f"{ROOT}-other/a.py") == f"{ROOT}-other/a.py"
    assert recording.class_file(np.random.default_rng()) == ""
