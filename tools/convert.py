"""Weights of other projects to the zoo's names and format, and back to torchvision's and Paddle's. See --help."""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collections.abc import Mapping
from typing import Any, get_type_hints

import numpy as np

from data.errors import UserError
from zoo.config import loader
from zoo.models import load_spec
from zoo.models.arcface.spec import HEAD
from zoo.weights import direction, faces, files, infer, layouts, names, segmentation
from zoo.weights.match import match

EPILOG = """\
Depth, classes, widths, heads and blocks are read off the tensors; -o states one of them, and the file must agree.
Every tensor is compared with what the net needs: nothing is written if one is missing, left over or of another shape.

origins
  torchvision    ResNet-18 to -152
  paddle_vision  paddle.vision.models.resnet18 to resnet152
  paddleclas     PaddleClas' ResNet50, 101 and 152; not its 18 and 34 with a shortcut more, nor the _vd nets
  mindspore      mindspore-ai/models' ResNet; of 1001 classes the last, which no image has, is left out
  mindcv         mindspore-lab/mindcv's ResNet
  mit            mit-han-lab/temporal-shift-module on a ResNet
  mmaction2      open-mmlab/mmaction2's TSM on a ResNet; a non-local block must be the embedded Gaussian
  paddlevideo    PaddleVideo's TSM on a ResNet. Its shift looks the other way: the channels are put into another order,
                 which is the same function for the zoo's shift (or --keep-direction, and model.shift_direction=past)
  mmseg          open-mmlab/mmsegmentation's DeepLabV3+ on a ResNet, with its auxiliary head or -o auxiliary=false
  paddleseg      PaddleSeg's DeepLabV3P on ResNet50_vd or ResNet101_vd, for model.variant=paddleseg
  insightface    insightface's IResNet: model.pt, or checkpoint_gpu_0.pt; --head joins the classes of all such files
  plsc           PLSC 1's ResNet, for model.variant=plsc: the folder of a pass. -o variant=insightface moves epsilons,
                 slopes and pixels into the other variant; --head joins the classes of all ranks
  plsc2          PLSC 2's IResNet: NAME.pdparams; --head joins the classes of all NAME_rank*.pdparams
  canonical      a file of the zoo, such as runs/<name>/checkpoints/best/model.safetensors

examples
  python tools/convert.py TSM_kinetics_RGB_resnet50_shift8_blockres_avg_segment8_e50.pth tsm_k400.safetensors
  python tools/convert.py mine.pth mine.safetensors -o num_classes=174
  python tools/convert.py ResNet50_pretrained.pdparams resnet50.safetensors
  python tools/convert.py TSM_k400_16frames.pdparams tsm_k400.safetensors --shift-div 16
  python tools/convert.py deeplabv3plus_r50-d8_512x1024_80k_cityscapes_20200606_114049-f9fb496d.pth deeplab.safetensors
  python tools/convert.py r101-d16.pth r101.safetensors -o output_stride=16 -o multi_grid=[1,2,4] -o rates=[6,12,18]
  python tools/convert.py ms1mv3_arcface_r50/backbone.pth r50.safetensors
  python tools/convert.py plsc/output/119 plsc50.safetensors --head
  python tools/convert.py runs/resnet50_imagenet/checkpoints/best/model.safetensors resnet50.pth --to torchvision

Exit codes: 0 done, 2 nothing written."""
OPTIONS = {  # of -o
    "tsm": ("depth", "num_classes", "width", "non_local"),
    "resnet": ("depth", "num_classes", "width"),
    "deeplabv3plus": (
        "variant",
        "depth",
        "stem",
        "num_classes",
        "width",
        "head_width",
        "low_width",
        "aux_width",
        "auxiliary",
        *infer.UNSEEN,
    ),
    "arcface": ("variant", "depth", "num_classes", "width", "embedding", "size"),
}
INFER = {
    "tsm": infer.classifier,
    "resnet": infer.classifier,
    "deeplabv3plus": infer.segmenter,
    "arcface": infer.embedder,
}
TO = {"canonical": (".safetensors",), "torchvision": (".safetensors", ".pth"), "paddle": (".safetensors",)}
SHIFT_DIV = 8  # the zoo's default, and PaddleVideo's nets of 8 frames
TSM = ("mit", "mmaction2", "paddlevideo", "canonical")  # what the classifiers of these are if --model does not say


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    arguments = parse(argv)
    try:
        convert(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="convert.py",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__.split(" See")[0],
    )
    add = parser.add_argument
    add(
        "source",
        metavar="IN",
        help=f"one of {', '.join(files.EXTENSIONS)}, or a folder of PLSC; no code is run from it",
    )
    add("target", metavar="OUT", help=".safetensors; with --to torchvision also .pth. Never overwritten")
    add("--model", choices=tuple(OPTIONS), help="default: what files of this origin usually hold")
    add("--origin", choices=("auto", *names.ORIGINS), default="auto", help="default: told from the names")
    add(
        "--to",
        choices=tuple(TO),
        default="canonical",
        help="names and layout to write, paddle for paddle.vision's; default canonical",
    )
    add(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="what the net must be, with the keys of a recipe's model section: depth, num_classes, ...; repeatable",
    )
    add(
        "--shift-div",
        metavar="N",
        type=int,
        help="for paddlevideo: 1/N of the channels moves each way, with N the frames it was trained with; default "
        f"{SHIFT_DIV}",
    )
    add(
        "--head", action="store_true", help="of a net for faces: take the class matrix too, from the files of all ranks"
    )
    add("--keep-direction", action="store_true", help="for paddlevideo: leave the order of the channels")
    return parser.parse_args(argv)


def convert(arguments: argparse.Namespace) -> None:
    """Read, rename, compare, write. Raises UserError, and then has written nothing."""
    if not arguments.target.endswith(TO[arguments.to]):
        raise UserError(f"{arguments.target}: the name must end in {' or '.join(TO[arguments.to])}")
    files.refuse_existing(arguments.target)
    tensors, metadata, sources = faces.read(arguments.source, arguments.head)
    origin = names.detect(tensors) if arguments.origin == "auto" else arguments.origin
    model = arguments.model or usual_model(origin, tensors)
    turned = origin == "paddlevideo" and model == "tsm"
    if not turned and (arguments.keep_direction or arguments.shift_div is not None):
        raise UserError(
            f"--keep-direction and --shift-div are for a tsm of paddlevideo, but this is a {model} of {origin}"
        )
    if arguments.to != "canonical" and model in ("deeplabv3plus", "arcface"):
        raise UserError(f"--to {arguments.to}: that project has no {model} like these")
    if arguments.head and HEAD not in tensors:
        raise UserError(
            f"--head: there is no class matrix in {arguments.source} or beside it; without --head the net "
            "alone is taken"
        )
    options = stated(arguments.override, model)
    tensors = layouts.to_canonical(tensors, origin)
    remarks = []
    if origin == "mindspore" and options.get("num_classes") != 1001 and len(tensors.get("fc.bias", ())) == 1001:
        tensors = layouts.without_spare_class(tensors)
        remarks.append(
            "the last of 1001 classes, which no image of ImageNet has, is left out; -o num_classes=1001 keeps it"
        )
    moved = origin == "plsc" and options.get("variant") == "insightface"
    if moved:
        tensors = faces.to_insightface(tensors)
    fields = {**INFER[model](tensors), **options}
    print(
        f"{arguments.source}: {origin}'s names; {model} with "
        + ", ".join(f"{key} {value}" for key, value in fields.items())
    )
    report = match(tensors, wanted(model, fields))
    print(report)
    if not report.complete:
        deployed = report.missing and all(name.startswith("aux.") for name in report.missing)
        raise UserError(
            f"{arguments.source} does not fill the net; nothing is written. "
            + (
                "Without its auxiliary head it is taken with -o auxiliary=false"
                if deployed
                else "Another --model, --origin or -o may fit"
            )
        )
    refuse_other_types(tensors)
    if turned:
        tensors, direction_remarks = turn(tensors, fields["depth"], arguments.shift_div, arguments.keep_direction)
        remarks += direction_remarks
        fields.update(
            shift_direction="past" if arguments.keep_direction else "future", shift_div=arguments.shift_div or SHIFT_DIV
        )
    metadata = {
        **metadata,
        "origin": origin,
        "model": model,
        "arch": json.dumps(recorded(fields)),
        "file": os.path.basename(os.path.normpath(arguments.source)),
        "sha256": digest(sources),
    }
    unstated = [key for key in infer.UNSEEN if model == "deeplabv3plus" and key not in fields]
    if unstated:
        remarks.append(
            f"no tensor shows {', '.join(unstated)}: the recipe must have them as the net was trained; with "
            "-o KEY=VALUE here they stand in the file, and a run compares"
        )
    if model == "arcface" and HEAD not in tensors:
        remarks.append("without a class matrix: a run that trains it on, or evaluates it, wants -o fresh_head=true")
    if origin == "mmaction2" and fields["non_local"]:
        remarks.append(
            "mmaction2's dot-product blocks have the same names; only embedded-Gaussian ones compute the same"
        )
    for remark in remarks + ([] if moved else layouts.notes(origin, fields["depth"] >= 50)):
        print(f"note: {remark}")
    write = {"canonical": dict, "torchvision": layouts.to_torchvision, "paddle": layouts.to_paddle}[arguments.to]
    save(arguments.target, write(tensors), metadata)
    print(f"wrote {arguments.target}")


def usual_model(origin: str, tensors: Mapping[str, np.ndarray]) -> str:
    """What a file of this origin most likely holds; PaddleVideo's without prefixes are ImageNet weights."""
    if segmentation.detect(tensors):
        return "deeplabv3plus"
    if faces.detect(tensors):
        return "arcface"
    if origin == "paddlevideo" and not any(name.startswith(("backbone.", "head.")) for name in tensors):
        return "resnet"
    return "tsm" if origin in TSM else "resnet"


def turn(tensors: Mapping[str, np.ndarray], depth: int, given_div: int | None, keep: bool) -> tuple[Any, list[str]]:
    """A TSM of PaddleVideo for the zoo's shift, unless it is to be kept, and what to know about it.

    Raises UserError if the zoo's shift cannot do what PaddleVideo's does.
    """
    div = SHIFT_DIV if given_div is None else given_div
    widths = {
        tensor.shape[0]
        for name, tensor in tensors.items()
        if name == "bn1.weight" or name.endswith(".downsample.1.weight")
    }
    if div < 2 or any(2 * width // div != 2 * (width // div) for width in widths):
        raise UserError(
            f"--shift-div {div}: PaddleVideo's two folds would differ in size, which the zoo's shift "
            "cannot do; give the number of frames the net was trained with"
        )
    remarks = [
        "PaddleVideo's shift looks the other way; the channels are put into an order for which the zoo's shift "
        "computes the same"
    ]
    if keep:
        remarks = ["PaddleVideo's shift looks the other way: give -o model.shift_direction=past to the net"]
    if div != SHIFT_DIV:
        remarks.append(f"give -o model.shift_div={div} to the net")
    if depth > 50:
        remarks.append(
            f"PaddleVideo's ResNet-{depth} shifts in every block, the zoo's in every second one: these "
            "weights need training before they are of use"
        )
    return tensors if keep else direction.reverse(tensors, div), remarks


def stated(overrides: list[str], model: str) -> dict[str, Any]:
    """The KEY=VALUE pairs of -o, with values as a recipe has them. Raises UserError."""
    kinds, fields = get_type_hints(load_spec(model).Arch), {}
    for key, entry in loader.overrides(overrides).items():
        if key not in OPTIONS[model]:
            raise UserError(f"-o {key}={entry.value}: for a {model} give one of {', '.join(OPTIONS[model])}")
        try:
            fields[key] = loader.convert(entry.value, kinds[key])
        except ValueError as error:
            raise UserError(f"-o {key}={entry.value}: {error}") from None
    return fields


def wanted(model: str, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Canonical name -> shape of every parameter and running statistic of the net. Raises UserError."""
    options = dict(fields)
    if model == "resnet" and options.pop("non_local"):
        raise UserError("a resnet has no non-local blocks; give --model tsm")
    try:
        arch = load_spec(model).Arch(**options)
    except ValueError as error:
        raise UserError(str(error)) from None
    shapes = load_spec(model).shapes(arch)
    return {name: shape for name, shape in shapes.items() if None not in shape}  # of classes that nothing tells of


def recorded(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a run compares its net with. The shape of fc.weight tells what there is to know of the pictures' size."""
    return {key: value for key, value in fields.items() if key != "size"}


def digest(sources: list[str]) -> str:
    """The SHA-256 of a file, or of those of several, as text in their order."""
    found = [files.sha256(source) for source in sources]
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def refuse_other_types(tensors: Mapping[str, np.ndarray]) -> None:
    for name, array in tensors.items():
        if array.dtype != np.float32:
            raise UserError(f"{name} is {array.dtype}, but weights are float32 (or 16-bit floats); save it as float32")


def save(path: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Safetensors, or a plain state_dict of torch if the name ends in .pth."""
    if path.endswith(".safetensors"):
        return files.write(path, tensors, metadata)
    import torch

    with files.aside(path) as temporary, open(temporary, "wb") as file:
        torch.save({name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}, file)


if __name__ == "__main__":
    sys.exit(main())
