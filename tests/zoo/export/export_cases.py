"""Exports of all models that are compared with a framework, one body over all frameworks (test_export.py)."""

import os
import tempfile

import numpy as np
import onnx

from tests.helpers.cli import call_zoo
from tests.zoo.export import checkpoints
from zoo.export import proof
from zoo.run import trained
from zoo.weights.onnx_file import OnnxMetadata

WITH_PREPROCESSING = ("tsm_mobilenet_v2", "deeplabv3plus", "arcface")  # the others without


def exported(backend, weights, out, *words):
    """Export a checkpoint; return the model and its metadata."""
    words = [weights, "--out", out, "--framework", backend.FRAMEWORK, "--device", "cpu", *words]
    assert call_zoo("export", *words) == 0
    model = onnx.load(out)
    return model, OnnxMetadata.from_properties({each.key: each.value for each in model.metadata_props}, out)


def case_every_model_is_exported_within_1e_5(backend):
    with tempfile.TemporaryDirectory() as folder:
        roots = checkpoints.make_data(folder)
        for model in checkpoints.MODELS:
            weights = checkpoints.make(os.path.join(folder, model), model, roots)
            words = ["--with-preprocessing"] * (model in WITH_PREPROCESSING)
            _, metadata = exported(backend, weights, os.path.join(folder, f"{model}.onnx"), *words)
            assert metadata.framework == backend.FRAMEWORK and metadata.max_difference <= 1e-5, metadata
            # Its own checkpoint would hold the same tensors, so the graph is the same whatever framework trained it.
            read = trained.read(weights, backend.FRAMEWORK, "cpu", (), False)
            state = proof.load_trainer(read).state_dict()
            assert all(np.array_equal(state[name], array) for name, array in read.tensors.items())


def case_frames_of_a_stream_are_exported(backend):
    with tempfile.TemporaryDirectory() as folder:
        roots = checkpoints.make_data(folder)
        run, model = os.path.join(folder, "run"), "tsm_mobilenet_v2"
        weights = checkpoints.make(run, model, roots, model__shift_direction="causal")
        _, metadata = exported(backend, weights, os.path.join(folder, "a.onnx"), "--stream")
        assert metadata.states and metadata.max_difference <= 1e-5, metadata
