"""DeepLabV3+ from elsewhere: names map completely, files of other projects compute the same, what does not fit is
refused."""

import json
import os
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from data.errors import UserError
from tests.zoo.models.deeplabv3plus.golden import (
    CASES,
    CLASSES,
    TOLERANCE,
    pictures,
    recorded,
    relative,
    thinned,
)
from tests.zoo.weights.test_origins import drawn, listed
from tools import convert
from zoo.models.deeplabv3plus import spec
from zoo.models.deeplabv3plus.torch import Model
from zoo.run import restore
from zoo.trainer.protocol import Param
from zoo.weights import files, infer, layouts, names
from zoo.weights.match import match_state_dict

LISTS = {  # list of names -> origin, what its tensors say
    "mmseg_r50": ("mmseg", dict(variant="mmseg", depth=50, stem="deep", low_width=48, aux_width=256)),
    "mmseg_r50b": ("mmseg", dict(variant="mmseg", depth=50, stem="plain", low_width=48, aux_width=256)),
    "mmseg_r18": ("mmseg", dict(variant="mmseg", depth=18, stem="deep", head_width=128, low_width=12, aux_width=64)),
    "paddleseg_r50vd": ("paddleseg", dict(variant="paddleseg", depth=50, stem="deep", low_width=48)),
}
SMALL = dict(depth=18, num_classes=3, width=4, head_width=8, low_width=2, aux_width=5)
NAMES = [f"class {i}" for i in range(3)]
COLOURS = [[i, 0, 9] for i in range(3)]
HALVES = (("depthwise.", "depthwise_conv."), ("pointwise.", "pointwise_conv."))
AS_MMSEG = (
    ("head.image_pool.", "decode_head.image_pool.1."),
    ("head.aspp.", "decode_head.aspp_modules."),
    ("head.bottleneck.", "decode_head.bottleneck."),
    ("head.low.", "decode_head.c1_bottleneck."),
    ("head.fuse.", "decode_head.sep_bottleneck."),
    ("head.classifier.", "decode_head.conv_seg."),
    ("aux.project.", "auxiliary_head.convs.0."),
    ("aux.classifier.", "auxiliary_head.conv_seg."),
    *HALVES,
    *(
        (f"backbone.{kind}{i + 1}.", f"backbone.stem.{3 * i + k}.")
        for i in range(3)
        for k, kind in enumerate(("conv", "bn"))
    ),
)


def small(**more):
    """Canonical tensors of a small net."""
    rng = np.random.default_rng(7)
    return {
        name: rng.uniform(0.1, 1, shape).astype(np.float32)
        for name, shape in spec.shapes(spec.Arch(**{**SMALL, **more})).items()
    }


def as_mmseg(tensors):
    """A state dict under mmsegmentation's names, of a net with a deep stem."""
    found = {}
    for name, tensor in tensors.items():
        for ours, theirs in AS_MMSEG:
            name = name.replace(ours, theirs) if not name.startswith("backbone.layer") else name
        found[name] = torch.from_numpy(tensor)
        if name.endswith("running_var"):
            found[name.replace("running_var", names.COUNTER)] = torch.tensor(5)
    return found


def run(source, target, *more):
    return convert.main([str(source), str(target), *more])


def refused(capsys, folder, content, *more):
    """The message of a conversion that must fail and leave nothing."""
    torch.save(content, folder / "in.pth")
    assert run(folder / "in.pth", folder / "out.safetensors", *more) == 2
    assert os.listdir(folder) == ["in.pth"]
    output = capsys.readouterr()
    assert output.err.startswith("error: ")
    return output.out + output.err


def converted(folder, content, *more):
    torch.save(content, folder / "in.pth")
    assert run(folder / "in.pth", folder / "out.safetensors", *more) == 0
    return files.read(str(folder / "out.safetensors"))


@pytest.mark.parametrize("which, expected", LISTS.items())
def test_names_map_completely(which, expected):
    origin, options = expected
    theirs = {name: np.broadcast_to(np.float32(k), shape) for k, (name, shape) in enumerate(listed(which).items())}
    assert names.detect(theirs) == origin
    ours = layouts.to_canonical(theirs, origin)
    assert infer.segmenter(ours) == {**options, "num_classes": 19, "width": 64}
    report = match_state_dict(ours, spec.shapes(spec.Arch(**infer.segmenter(ours))))
    assert report.complete, str(report)
    assert len(ours) == sum(not name.endswith(names.COUNTER) for name in theirs)
    assert names.detect(ours) == "canonical"


@pytest.mark.parametrize(
    "old, origin, new",
    [
        ("backbone.stem.3.weight", "mmseg", "backbone.conv2.weight"),
        ("backbone.stem.7.running_var", "mmseg", "backbone.bn3.running_var"),
        ("backbone.layer3.0.downsample.1.bias", "mmseg", "backbone.layer3.0.downsample.1.bias"),
        ("backbone.bn1.bias", "mmseg", "backbone.bn1.bias"),
        ("module.decode_head.aspp_modules.3.pointwise_conv.bn.bias", "mmseg", "head.aspp.3.pointwise.bn.bias"),
        ("decode_head.sep_bottleneck.0.depthwise_conv.conv.weight", "mmseg", "head.fuse.0.depthwise.conv.weight"),
        ("auxiliary_head.conv_seg.bias", "mmseg", "aux.classifier.bias"),
        ("backbone.conv1_3._batch_norm._mean", "paddleseg", "backbone.bn3.running_mean"),
        ("backbone.bb_2_5.conv0._conv.weight", "paddleseg", "backbone.layer3.5.conv1.weight"),
        ("backbone.bb_1_0.short._batch_norm._variance", "paddleseg", "backbone.layer2.0.downsample.1.running_var"),
        ("backbone.bb_1_0.short._conv.weight", "paddleseg", "backbone.layer2.0.downsample.0.weight"),
        ("head.aspp.aspp_blocks.2.piontwise_conv._conv.bias", "paddleseg", "head.aspp.2.pointwise.conv.bias"),
        ("head.aspp.global_avg_pool.1._conv.weight", "paddleseg", "head.image_pool.conv.weight"),
        ("head.aspp.conv_bn_relu._conv.bias", "paddleseg", "head.bottleneck.conv.bias"),
        ("head.decoder.conv_bn_relu3.depthwise_conv._batch_norm.bias", "paddleseg", "head.fuse.1.depthwise.bn.bias"),
        ("head.decoder.conv_bn_relu1._conv.weight", "paddleseg", "head.low.conv.weight"),
        ("head.decoder.conv.weight", "paddleseg", "head.classifier.weight"),
    ],
)
def test_single_names(old, origin, new):
    assert names.canonical_name(old, origin) == new


def logits(tensors, case):
    """Of a net of CASES with canonical tensors, which must fill it exactly."""
    net = Model(spec.Arch(num_classes=CLASSES, **CASES[case].options))
    result = net.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in tensors.items()}, False)
    assert not result.unexpected_keys and all(name.endswith(names.COUNTER) for name in result.missing_keys)
    with torch.no_grad():
        return net.eval()(torch.from_numpy(pictures(case))).numpy()


def theirs(which):
    """A state dict under another project's names, values drawn by these."""
    return {name: drawn(name, shape) if shape else np.zeros((), np.int64) for name, shape in listed(which).items()}


def test_a_file_of_mmsegmentation_computes_the_same(tmp_path, capsys):
    state = {name: torch.from_numpy(np.asarray(tensor)) for name, tensor in theirs("mmseg_r18").items()}
    tensors, metadata = converted(tmp_path, {"meta": {"CLASSES": ["a", "b"]}, "state_dict": state})
    assert relative(thinned("resized", logits(tensors, "r18")), recorded()["names/mmseg_r18"]) <= TOLERANCE
    assert metadata["model"] == "deeplabv3plus" and metadata["origin"] == "mmseg"
    assert "mmseg's names; deeplabv3plus with variant mmseg, depth 18, stem deep" in capsys.readouterr().out


def test_a_file_of_paddleseg_computes_the_same(tmp_path, capsys):
    (tmp_path / "in.pdparams").write_bytes(pickle.dumps(theirs("paddleseg_r50vd"), protocol=4))
    assert run(tmp_path / "in.pdparams", tmp_path / "out.safetensors") == 0
    tensors, metadata = files.read(str(tmp_path / "out.safetensors"))
    assert relative(thinned("resized", logits(tensors, "vd50")), recorded()["names/paddleseg_r50vd"]) <= TOLERANCE
    assert metadata["model"] == "deeplabv3plus" and metadata["origin"] == "paddleseg"
    assert "note: PaddleSeg's nets want pixels with another mean" in capsys.readouterr().out


@pytest.mark.parametrize(
    "meta",
    [
        dict(CLASSES=tuple(NAMES), PALETTE=COLOURS, epoch=3, config="text"),  # mmsegmentation 0.x
        dict(dataset_meta=dict(classes=tuple(NAMES), palette=COLOURS), seed=1, cfg="text"),  # and 1.x
    ],
)
def test_class_names_and_colours_come_along(tmp_path, meta):
    ours = small()
    tensors, metadata = converted(tmp_path, {"meta": meta, "state_dict": as_mmseg(ours), "optimizer": {}})
    assert tensors.keys() == ours.keys() and all(np.array_equal(tensors[name], ours[name]) for name in ours)
    assert json.loads(metadata["classes"]) == NAMES and json.loads(metadata["palette"]) == COLOURS


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state},
        lambda state: {"state_dict": state, "meta": {"CLASSES": None, "PALETTE": 3}},
        lambda state: {"state_dict": state, "meta": [1]},
    ],
)
def test_files_without_class_names(tmp_path, wrap):
    tensors, metadata = converted(tmp_path, wrap(as_mmseg(small())))
    assert tensors.keys() == small().keys() and "classes" not in metadata and "palette" not in metadata
    assert json.loads(metadata["arch"]) == {"variant": "mmseg", "stem": "deep", **SMALL}


class HistoryBuffer:
    """As mmengine's: some numbers, and methods by name."""

    def __init__(self):
        self.history, self.methods, self.last = np.array([1.0, 2.0]), {"min": HistoryBuffer.touch}, np.float64(2)

    @staticmethod
    def touch(path):
        Path(path).touch()


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return HistoryBuffer.touch, (self.path,)


@pytest.fixture
def mmengine(monkeypatch):
    """Its module as far as pickling asks for it; call the result to uninstall it."""
    parts = ("mmengine", "mmengine.logging", "mmengine.logging.history_buffer")
    for name in parts:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(HistoryBuffer, "__module__", parts[-1])
    sys.modules[parts[-1]].HistoryBuffer = HistoryBuffer
    return lambda: [monkeypatch.delitem(sys.modules, name) for name in parts]


def test_the_log_of_a_training_run_is_left_out(tmp_path, mmengine):
    hub = {"log_scalars": {"train/loss": HistoryBuffer()}, "runtime_info": {"iter": 5, "best": np.float32(0.5)}}
    torch.save({"state_dict": as_mmseg(small()), "message_hub": hub}, tmp_path / "in.pth")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "in.pth", weights_only=True)  # so there is something to leave out
    mmengine()
    assert run(tmp_path / "in.pth", tmp_path / "out.safetensors") == 0
    assert files.read(str(tmp_path / "out.safetensors"))[0].keys() == small().keys()


def test_nothing_in_that_log_is_called(tmp_path, capsys, mmengine):
    trace = tmp_path / "trace"
    content = {"state_dict": as_mmseg(small()), "message_hub": Trap(str(trace))}
    (tmp_path / "files").mkdir()
    assert "holds more than tensors" in refused(capsys, tmp_path / "files", content)
    assert not trace.exists()
    torch.load(tmp_path / "files" / "in.pth", weights_only=False)  # the trap does work
    assert trace.exists()


def test_a_deployed_net_must_be_named_as_such(tmp_path, capsys):
    state = as_mmseg(small(auxiliary=False))
    text = refused(capsys, tmp_path, state)
    assert "missing:\n    aux.project.conv.weight" in text and "-o auxiliary=false" in text
    tensors, metadata = converted(tmp_path, state, "-o", "auxiliary=false")
    assert tensors.keys() == small(auxiliary=False).keys() and json.loads(metadata["arch"])["auxiliary"] is False


def test_what_no_tensor_shows_is_kept_where_it_is_told(tmp_path, capsys):
    told = ("-o", "output_stride=16", "-o", "multi_grid=[1,2]", "-o", "rates=[6,12,18]")
    _, metadata = converted(tmp_path, as_mmseg(small()), *told)
    assert json.loads(metadata["arch"]) == {
        "variant": "mmseg",
        "stem": "deep",
        **SMALL,
        "output_stride": 16,
        "multi_grid": [1, 2],
        "rates": [6, 12, 18],
    }
    assert "note: no tensor shows align_corners:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more, says",
    [
        (("-o", "depth=50"), "does not fill the net"),
        (("-o", "head_width=9"), "head.image_pool.conv.weight: (8, 32, 1, 1), the net wants (9, 32, 1, 1)"),
        (("-o", "low_width=3"), "of another shape"),
        (("-o", "aux_width=6"), "of another shape"),
        (("-o", "num_classes=4"), "of another shape"),
        (("-o", "stem=plain"), "backbone.conv2.weight"),
        (("-o", "variant=paddleseg"), "of another shape"),
        (("-o", "auxiliary=false"), "unexpected:\n    aux.project.conv.weight"),
        (("-o", "output_stride=12"), "-o output_stride=12: expected one of 8, 16"),
        (("-o", "rates=[6,12]"), "expected 3 values"),
        (("-o", "multi_grid=[1,2,4]"), "multi_grid: one dilation for each of the 2 blocks"),
        (("-o", "align_corners=1"), "expected true or false"),
        (("-o", "non_local=true"), "for a deeplabv3plus give one of variant"),
        (("--to", "torchvision"), "--to torchvision"),
        (("--to", "paddle"), "--to paddle"),
        (("--model", "tsm"), "no ResNet known here"),
    ],
)
def test_what_the_user_states_must_hold(tmp_path, capsys, more, says):
    assert says in refused(capsys, tmp_path, as_mmseg(small()), *more)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"decode_head.c1_bottleneck.conv.weight": None}, "no head.low.conv.weight of 4 dimensions"),
        ({"decode_head.bottleneck.bn.bias": None}, "1 missing:\n    head.bottleneck.bn.bias"),
        (
            {"decode_head.bottleneck.conv.weight": torch.zeros(8, 40, 1, 1)},
            "(8, 40, 1, 1), the net wants (8, 40, 3, 3)",
        ),
        ({"decode_head.loss.weight": torch.zeros(3)}, "1 unexpected:\n    decode_head.loss.weight"),
        ({"decode_head.conv_seg.bias": torch.zeros(3, dtype=torch.float64)}, "head.classifier.bias is float64"),
        ({"backbone.layer2.1.conv1.weight": None}, "missing:\n    backbone.layer2.1.conv1.weight"),
    ],
)
def test_other_nets_are_refused(tmp_path, capsys, change, says):
    state = {**as_mmseg(small()), **change}
    assert says in refused(capsys, tmp_path, {name: tensor for name, tensor in state.items() if tensor is not None})


@pytest.mark.parametrize(
    "options",
    [
        dict(depth=50),
        dict(stem="plain"),
        dict(width=6),
        dict(variant="paddleseg", auxiliary=False),
        dict(variant="paddleseg", head_width=None, auxiliary=True),
    ],
)
def test_a_canonical_file_stays_as_it_is(tmp_path, options):
    ours = small(**options)
    files.write(str(tmp_path / "in.safetensors"), ours)
    assert run(tmp_path / "in.safetensors", tmp_path / "out.safetensors") == 0
    tensors, metadata = files.read(str(tmp_path / "out.safetensors"))
    assert tensors.keys() == ours.keys() and all(np.array_equal(tensors[name], ours[name]) for name in ours)
    arch = spec.Arch(**json.loads(metadata["arch"]))
    assert arch.has_auxiliary == spec.Arch(**{**SMALL, **options}).has_auxiliary


def initial(arch, said=None, **more):
    """What a run of this net would start from."""
    cfg = types.SimpleNamespace(**{**dict(seed=1, weights=None, fresh_head=False, weights_dir="", model=arch), **more})
    params = [Param(name, shape) for name, shape in spec.shapes(arch).items()]
    return restore.initial(cfg, spec, arch, params, NAMES, (said if said is not None else []).append)


def test_a_run_compares_what_was_told(tmp_path):
    ours = small()
    converted(tmp_path, as_mmseg(ours), "-o", "rates=[6,12,18]", "-o", "multi_grid=[1,2]")
    weights, options = str(tmp_path / "out.safetensors"), dict(SMALL, rates=(6, 12, 18))
    found, _ = initial(spec.Arch(multi_grid=(1, 2), **options), weights=weights)
    assert all(np.array_equal(found[name], ours[name]) for name in ours)
    with pytest.raises(
        UserError,
        match=r"is for model.multi_grid=\[1,2\], the recipe says \[\]; give "
        r"-o model.multi_grid=\[1,2\]",
    ):
        initial(spec.Arch(**options), weights=weights)
    with pytest.raises(UserError, match="is for model.head_width=8, the recipe says 16"):
        initial(spec.Arch(**{**options, "multi_grid": (1, 2), "head_width": 16}), weights=weights)


def test_a_run_with_the_usual_widths_takes_usual_weights(tmp_path):
    """They stand as null in its recipe."""
    ours = small(head_width=None, low_width=48, aux_width=256)
    _, metadata = converted(tmp_path, as_mmseg(ours))
    assert "head_width" not in json.loads(metadata["arch"])
    found, _ = initial(spec.Arch(depth=18, num_classes=3, width=4), weights=str(tmp_path / "out.safetensors"))
    assert all(np.array_equal(found[name], ours[name]) for name in ours)
