"""Key mapping and variants of face recognition models."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.zoo.models.arcface.golden import relative
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
)
from tests.zoo.weights.state_dicts import numbered, recorded_shapes
from zoo.models.arcface import spec
from zoo.models.arcface.torch import Model
from zoo.weights import conversion, files, layouts, names
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
    options = conversion.infer_face_model(canonical)
    classes = {"num_classes": 7} if origin == "plsc2" else {}
    assert options == {"variant": variant, "depth": 50, "width": 64, "embedding": 512, "size": 112, **classes}
    shapes = spec.shapes(spec.Arch(**{"num_classes": 1, **options}))
    if origin != "plsc2":
        del shapes[spec.HEAD_WEIGHT]
    report = match_state_dict(canonical, shapes)
    assert report.complete, str(report)


@pytest.mark.parametrize(
    "name, canonical",
    [
        ("conv2d_0.w_0", "conv1.weight"),
        ("batch_norm_1.b_0", "layer1.0.bn1.bias"),
        ("conv2d_3.w_0", "layer1.0.downsample.0.weight"),
        ("batch_norm_4.w_1", "layer1.0.downsample.1.running_mean"),
        ("batch_norm_77.w_0", "bn2.weight"),
        ("fc_0.b_0", "fc.bias"),
        ("batch_norm_78.w_0", "features.weight"),
    ],
)
def test_single_names_of_plsc(name, canonical):
    """In the order recorded in tests/golden/arcface_names_plsc_r50.txt."""
    assert names.canonical_name(name, "plsc", 24) == canonical


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
