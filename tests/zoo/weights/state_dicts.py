"""State dicts of other projects: recorded names and shapes, and small ones made from canonical tensors."""

import zlib

import numpy as np

from tests.helpers.paths import GOLDEN
from zoo.models.deeplabv3plus import spec as deeplab
from zoo.models.resnet import spec as resnet
from zoo.weights import names

SMALL_DEEPLAB = dict(depth=18, num_classes=3, width=4, head_width=8, low_width=2, aux_width=5)
PADDLE_STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}
MINDSPORE_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
MMSEG = (
    ("head.image_pool.", "decode_head.image_pool.1."),
    ("head.aspp.", "decode_head.aspp_modules."),
    ("head.bottleneck.", "decode_head.bottleneck."),
    ("head.low.", "decode_head.c1_bottleneck."),
    ("head.fuse.", "decode_head.sep_bottleneck."),
    ("head.classifier.", "decode_head.conv_seg."),
    ("aux.project.", "auxiliary_head.convs.0."),
    ("aux.classifier.", "auxiliary_head.conv_seg."),
    ("depthwise.", "depthwise_conv."),
    ("pointwise.", "pointwise_conv."),
    *(
        (f"backbone.{layer}{i + 1}.", f"backbone.stem.{3 * i + k}.")
        for i in range(3)
        for k, layer in enumerate(("conv", "bn"))
    ),
)


def recorded_shapes(file):
    """Return the names and shapes of another project's state dict, recorded in tests/golden."""
    rows = [line.split() for line in (GOLDEN / f"{file}.txt").read_text().splitlines() if line[0] != "#"]
    return {name: () if shape == "scalar" else tuple(map(int, shape.split("x"))) for name, shape in rows}


def drawn(name, shape):
    """Draw a tensor from its project's own name and shape alone, so that a wrong key mapping changes the logits."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith(("running_var", "variance")) or (len(shape) == 1 and name.endswith(("weight", "gamma"))):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) == 1:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    fan_in = np.prod(shape[1:]) if len(shape) == 4 else max(shape)
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(fan_in**-0.5)


def drawn_state_dict(file):
    """Return a state dict with recorded names and shapes."""
    shapes = recorded_shapes(file)
    return {name: drawn(name, shape) if shape else np.zeros((), np.int64) for name, shape in shapes.items()}


def numbered(shapes):
    """Return cheap arrays that differ: the k-th is the constant k."""
    return {name: np.broadcast_to(np.float32(k), shape) for k, (name, shape) in enumerate(shapes.items())}


def random_tensors(shapes, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(0.1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def small_resnet(classes=3, width=2, depth=18):
    """Return canonical tensors of a small ResNet."""
    return random_tensors(resnet.shapes(resnet.Arch(depth, classes, width)), seed=5)


def small_deeplab(**options):
    """Return canonical tensors of a small DeepLabV3+."""
    return random_tensors(deeplab.shapes(deeplab.Arch(**{**SMALL_DEEPLAB, **options})), seed=7)


def small_backbone():
    """Return canonical tensors of a small ResNet-18 with a deep stem."""
    return {name[len("backbone.") :]: array for name, array in small_deeplab().items() if name.startswith("backbone.")}


def as_paddle(tensors):
    return {
        ".".join(PADDLE_STATISTICS.get(part, part) for part in name.split(".")): tensor.T
        if name == "fc.weight"
        else tensor
        for name, tensor in tensors.items()
    }


def as_mindspore(tensors, classifier="end_point", shortcut="down_sample_layer"):
    """Convert a ResNet."""
    is_basic = not any(name.endswith("conv3.weight") for name in tensors)
    result = {}
    for name, tensor in tensors.items():
        module, part = name.rsplit(".", 1)
        if resnet.is_norm(name):
            part = MINDSPORE_NORM[part]
        if classifier == "end_point" and is_basic and name.startswith("layer") and "downsample" not in name:
            module = module.replace("bn1", "bn1d").replace("bn2", "bn2d")
        module = module.replace("downsample", shortcut).replace("fc", classifier)
        result[f"{module}.{part}"] = tensor
    return result


def as_paddlevideo(tensors, prefixes=("backbone.", "head.")):
    """Convert a ResNet with three convolutions per block and at most seven blocks per stage."""
    result = {}
    for name, tensor in as_paddle(tensors).items():
        parts = name.split(".")
        if parts[0] == "fc":
            result[prefixes[1] + name] = tensor
            continue
        block = [f"res{int(parts[0][5]) + 1}{'abcdefg'[int(parts[1])]}"] if parts[0].startswith("layer") else []
        inner = parts[2:-1] if block else parts[:-1]
        layer = "_batch_norm" if inner[0].startswith("bn") or inner == ["downsample", "1"] else "_conv"
        unit = "short" if inner[0] == "downsample" else f"conv{int(inner[0][-1]) - 1}" if block else "conv"
        result[prefixes[0] + ".".join([*block, unit, layer, parts[-1]])] = tensor
    return result


def as_mmseg(tensors):
    """Convert a DeepLabV3+ with a deep stem."""
    import torch  # which the cases of other frameworks do without

    result = {}
    for name, tensor in tensors.items():
        for canonical, mmseg in MMSEG:
            name = name.replace(canonical, mmseg) if not name.startswith("backbone.layer") else name
        result[name] = torch.from_numpy(tensor)
        if name.endswith("running_var"):
            result[name.replace("running_var", names.COUNTER)] = torch.tensor(5)
    return result


def as_vd(tensors):
    """Convert a ResNet with two convolutions per block to PaddleSeg's names."""
    result = {}
    for name, tensor in tensors.items():
        *path, part = name.split(".")
        layer = "_batch_norm" if path[-1].startswith("bn") or path[-2:] == ["downsample", "1"] else "_conv"
        if path[0].startswith("layer"):
            unit = "short" if path[2] == "downsample" else f"conv{int(path[2][-1]) - 1}"
            module = f"bb_{int(path[0][-1]) - 1}_{path[1]}.{unit}"
        else:
            module = f"conv1_{path[0][-1]}"
        result[f"{module}.{layer}.{PADDLE_STATISTICS.get(part, part)}"] = tensor
    return result
