"""DeepLabV3+ of other projects: key mapping, equal outputs, and refusal of everything that does not match the model."""

import json
import pickle
import types

import numpy as np
import pytest
import torch

from tests.helpers.conversions import assert_equal, converted, refused
from tests.zoo.models.deeplabv3plus.golden import CASES, CLASSES, TOLERANCE, input_images, recorded, relative, thinned
from tests.zoo.weights.state_dicts import (
    SMALL_DEEPLAB,
    as_mmseg,
    drawn_state_dict,
    numbered,
    recorded_shapes,
    small_backbone,
    small_deeplab,
)
from tests.zoo.weights.test_imagenet import stand_in
from zoo.models import load_spec
from zoo.models.deeplabv3plus.torch import Model
from zoo.run import weights
from zoo.trainer.protocol import Param
from zoo.weights import architectures, files, layouts, names
from zoo.weights.match import match_state_dict

spec = load_spec("deeplabv3plus")

RECORDED = {  # recorded names -> origin, inferred options
    "mmseg_r50": ("mmseg", dict(variant="mmseg", depth=50, stem="deep", low_width=48, aux_width=256)),
    "mmseg_r50b": ("mmseg", dict(variant="mmseg", depth=50, stem="plain", low_width=48, aux_width=256)),
    "mmseg_r18": ("mmseg", dict(variant="mmseg", depth=18, stem="deep", head_width=128, low_width=12, aux_width=64)),
    "paddleseg_r50vd": ("paddleseg", dict(variant="paddleseg", depth=50, stem="deep", low_width=48)),
}
CLASS_NAMES = [f"class {i}" for i in range(3)]
COLOURS = [[i, 0, 9] for i in range(3)]


@pytest.mark.parametrize("file, origin, options", [(file, *row) for file, row in RECORDED.items()])
def test_all_names(file, origin, options):
    tensors = numbered(recorded_shapes(f"names_{file}"))
    assert names.detect(tensors) == origin
    canonical = layouts.to_canonical(tensors, origin)
    assert architectures.infer_segmenter(canonical) == {**options, "num_classes": 19, "width": 64}
    report = match_state_dict(canonical, spec.shapes(spec.Arch(**architectures.infer_segmenter(canonical))))
    assert report.complete, str(report)
    assert len(canonical) == sum(not name.endswith(names.COUNTER) for name in tensors)
    assert names.detect(canonical) == "canonical"


def logits(tensors, case):
    """Return the outputs of the model of a case with canonical tensors, which must match it exactly."""
    model = Model(spec.Arch(num_classes=CLASSES, **CASES[case].options))
    state = {name: torch.from_numpy(np.array(tensor)) for name, tensor in tensors.items()}
    result = model.load_state_dict(state, strict=False)
    assert not result.unexpected_keys and all(name.endswith(names.COUNTER) for name in result.missing_keys)
    with torch.no_grad():
        return model.eval()(torch.from_numpy(input_images(case))).numpy()


def test_a_file_of_mmsegmentation_computes_the_same(tmp_path, capsys):
    state_dict = drawn_state_dict("names_mmseg_r18")
    state = {name: torch.from_numpy(np.asarray(tensor)) for name, tensor in state_dict.items()}
    tensors, metadata = converted(tmp_path, {"meta": {"CLASSES": ["a", "b"]}, "state_dict": state})
    assert relative(thinned("resized", logits(tensors, "r18")), recorded()["names/mmseg_r18"]) <= TOLERANCE
    assert metadata["model"] == "deeplabv3plus" and metadata["origin"] == "mmseg"
    assert "names of mmseg; deeplabv3plus with variant mmseg, depth 18, stem deep" in capsys.readouterr().out


def test_a_file_of_paddleseg_computes_the_same(tmp_path, capsys):
    (tmp_path / "in.pdparams").write_bytes(pickle.dumps(drawn_state_dict("names_paddleseg_r50vd"), protocol=4))
    tensors, metadata = converted(tmp_path, tmp_path / "in.pdparams")
    assert relative(thinned("resized", logits(tensors, "vd50")), recorded()["names/paddleseg_r50vd"]) <= TOLERANCE
    assert metadata["model"] == "deeplabv3plus" and metadata["origin"] == "paddleseg"
    assert "note: PaddleSeg's models expect pixels with another mean" in capsys.readouterr().out


@pytest.mark.parametrize(
    "meta",
    [
        dict(CLASSES=tuple(CLASS_NAMES), PALETTE=COLOURS, epoch=3, config="text"),  # mmsegmentation 0.x
        dict(dataset_meta=dict(classes=tuple(CLASS_NAMES), palette=COLOURS), seed=1, cfg="text"),  # 1.x
    ],
)
def test_class_names_and_colours_are_kept(tmp_path, meta):
    expected = small_deeplab()
    tensors, metadata = converted(tmp_path, {"meta": meta, "state_dict": as_mmseg(expected), "optimizer": {}})
    assert_equal(tensors, expected)
    assert json.loads(metadata["classes"]) == CLASS_NAMES and json.loads(metadata["palette"]) == COLOURS


def test_a_missing_auxiliary_head_must_be_stated(tmp_path, capsys):
    state = as_mmseg(small_deeplab(auxiliary=False))
    text = refused(capsys, tmp_path, state)
    assert "missing keys (7):\n    aux.project.conv.weight" in text and "-o auxiliary=false" in text
    tensors, metadata = converted(tmp_path, state, "-o", "auxiliary=false")
    assert tensors.keys() == small_deeplab(auxiliary=False).keys()
    assert json.loads(metadata["arch"])["auxiliary"] is False


def test_options_that_no_tensor_shows_are_kept_if_stated(tmp_path, capsys):
    flags = ("-o", "output_stride=16", "-o", "multi_grid=[1,2]", "-o", "rates=[6,12,18]")
    _, metadata = converted(tmp_path, as_mmseg(small_deeplab()), *flags)
    assert json.loads(metadata["arch"]) == {
        "variant": "mmseg",
        "stem": "deep",
        **SMALL_DEEPLAB,
        "output_stride": 16,
        "multi_grid": [1, 2],
        "rates": [6, 12, 18],
    }
    assert "note: the tensors do not show align_corners:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags, reason",
    [
        (("-o", "head_width=9"), "head.image_pool.conv.weight: (8, 32, 1, 1), the model expects (9, 32, 1, 1)"),
        (("-o", "stem=plain"), "backbone.conv2.weight"),
        (("-o", "auxiliary=false"), "unexpected keys (7):\n    aux.project.conv.weight"),
        (("-o", "output_stride=12"), "-o output_stride=12: expected one of 8, 16"),
        (("-o", "multi_grid=[1,2,4]"), "multi_grid: one dilation for each of the 2 blocks"),
        (("-o", "non_local=true"), "for deeplabv3plus give one of variant"),
        (("--to", "torchvision"), "--to torchvision"),
        (("--model", "tsm"), "not a supported ResNet"),
    ],
)
def test_stated_options_must_match(tmp_path, capsys, flags, reason):
    assert reason in refused(capsys, tmp_path, as_mmseg(small_deeplab()), *flags)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"decode_head.c1_bottleneck.conv.weight": None}, "no head.low.conv.weight with 4 dimensions"),
        ({"decode_head.bottleneck.bn.bias": None}, "missing keys (1):\n    head.bottleneck.bn.bias"),
        ({"decode_head.loss.weight": torch.zeros(3)}, "unexpected keys (1):\n    decode_head.loss.weight"),
        ({"decode_head.conv_seg.bias": torch.zeros(3, dtype=torch.float64)}, "head.classifier.bias is float64"),
    ],
)
def test_other_models_are_refused(tmp_path, capsys, change, reason):
    state = {**as_mmseg(small_deeplab()), **change}
    assert reason in refused(capsys, tmp_path, {name: tensor for name, tensor in state.items() if tensor is not None})


def initial(arch, lines=None, **settings):
    """Return the tensors that a run of this model starts from, and their origin."""
    cfg = types.SimpleNamespace(
        **{**dict(seed=1, weights=None, fresh_head=False, weights_dir="", model=arch), **settings}
    )
    params = [Param(name, shape) for name, shape in spec.shapes(arch).items()]
    return weights.initial(cfg, spec, arch, params, CLASS_NAMES, (lines if lines is not None else []).append)


@pytest.mark.parametrize("variant", ["deep", "vd"])
def test_a_run_starts_from_imagenet_weights(tmp_path, monkeypatch, variant):
    content, entry = stand_in(monkeypatch, variant)
    (tmp_path / entry.file).write_bytes(content)
    arch = spec.Arch(variant="paddleseg" if variant == "vd" else "mmseg", pretrained="imagenet", **SMALL_DEEPLAB)
    lines = []
    tensors, origin = initial(arch, lines, weights_dir=str(tmp_path))
    backbone = small_backbone()
    assert all(np.array_equal(tensors[f"backbone.{key}"], tensor) for key, tensor in backbone.items())
    assert tensors["head.image_pool.conv.weight"].std() > 0 and tensors["backbone.bn3.weight"].std() > 0
    path, new = tmp_path / entry.name / "model.safetensors", len(tensors) - len(backbone)
    assert lines == [f"weights: {len(backbone)} tensors from {path}, {new} newly initialized"]
    assert origin == f"{entry.title}, sha256 {files.sha256(str(path))}"
