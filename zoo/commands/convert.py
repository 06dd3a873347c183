"""Conversion of other projects' weights to the zoo's names and format, or back to torchvision's and Paddle's."""

import argparse
from collections.abc import Callable, Mapping

import numpy as np

from zoo import program
from zoo.commands.new_file import require_new
from zoo.data.errors import UserError
from zoo.models.arcface.spec import HEAD_WEIGHT
from zoo.run import cli
from zoo.weights import conversion, faces, files, layouts, names, origins, recorded
from zoo.weights.match import MatchReport, match_state_dict

DESCRIPTION = "Convert weights of other projects to the zoo's names and format, or back to torchvision's and Paddle's."
EPILOG = """\
Depth, classes, widths, heads and blocks are inferred from the tensors; -o states one of them, and the file must agree.
Every tensor is compared with the model: nothing is written with a missing or unexpected key or a shape mismatch.
Notes tell what a run needs, and `NOT EQUAL` what the model cannot do as its origin does; the file keeps them.

origins, the projects that a state dict can come from
  torchvision    ResNet-18 to -152
  paddle_vision  paddle.vision.models.resnet18 to resnet152
  paddleclas     PaddleClas' ResNet50, 101 and 152; not its 18 and 34 with one more shortcut, nor the _vd models
  mindspore      mindspore-ai/models' ResNet; of 1001 classes the last, which no image has, is dropped. For 50 layers
                 or more, model.padding=same and model.bn_eps=1e-4 are stored for runs
  mindcv         mindspore-lab/mindcv's ResNet; model.padding=same_pool is stored for runs
  mit            mit-han-lab/temporal-shift-module on a ResNet
  mmaction2      open-mmlab/mmaction2's TSM on a ResNet; a non-local block must be the embedded Gaussian
  paddlevideo    PaddleVideo's TSM on a ResNet. Its shift has the other direction: the channels are reordered, which
                 gives the same function with the zoo's shift (or --keep-direction, and model.shift_direction=past)
  mmseg          open-mmlab/mmsegmentation's DeepLabV3+ on a ResNet, with its auxiliary head or -o auxiliary=false
  paddleseg      PaddleSeg's DeepLabV3P on ResNet50_vd or ResNet101_vd, for model.variant=paddleseg
  insightface    insightface's IResNet: model.pt, or checkpoint_gpu_0.pt; --head joins the classes of all such files
  plsc           PLSC 1's ResNet, for model.variant=plsc: the folder of a pass. -o variant=insightface converts
                 epsilons, slopes and pixel scale to the other variant; --head joins the classes of all ranks
  plsc2          PLSC 2's IResNet: NAME.pdparams; --head joins the classes of all NAME_rank*.pdparams
  canonical      a file of the zoo, such as runs/<name>/checkpoints/best/model.safetensors

examples
  %(prog)s TSM_kinetics_RGB_resnet50_shift8_blockres_avg_segment8_e50.pth --out tsm_k400.safetensors
  %(prog)s custom.pth --out custom.safetensors -o num_classes=174
  %(prog)s ResNet50_pretrained.pdparams --out resnet50.safetensors
  %(prog)s TSM_k400_16frames.pdparams --out tsm_k400.safetensors --shift-div 16
  %(prog)s deeplabv3plus_r50-d8_512x1024_80k_cityscapes_20200606_114049-f9fb496d.pth --out deeplab.safetensors
  %(prog)s r101-d16.pth --out r101.safetensors -o output_stride=16 -o multi_grid=[1,2,4] -o rates=[6,12,18]
  %(prog)s ms1mv3_arcface_r50/backbone.pth --out r50.safetensors
  %(prog)s plsc/output/119 --out plsc50.safetensors --head
  %(prog)s runs/resnet50_imagenet/checkpoints/best/model.safetensors --out resnet50.pth --to torchvision

Exit codes: 0 done, 2 nothing written."""
Tensors = Mapping[str, np.ndarray]
TARGET_EXTENSIONS = {  # by --to
    "canonical": (".safetensors",),
    "torchvision": (".safetensors", ".pth"),
    "paddle": (".safetensors",),
}
FROM_CANONICAL: dict[str, Callable[[Tensors], Tensors]] = {  # by --to
    "canonical": dict,
    "torchvision": layouts.to_torchvision,
    "paddle": layouts.to_paddle,
}


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code."""
    convert(parse(argv))
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = program.parser(DESCRIPTION, EPILOG)
    add = parser.add_argument
    add(
        "source",
        metavar="IN",
        help=f"one of {', '.join(files.EXTENSIONS)}, or a folder of PLSC; no code is run from it",
    )
    add("--out", metavar="FILE", required=True, help=".safetensors; with --to torchvision also .pth; it must not exist")
    add("--model", choices=tuple(conversion.OPTIONS), help="default: the model that files of this origin usually hold")
    add("--origin", choices=("auto", *names.ORIGINS), default="auto", help="default: detected from the names")
    add(
        "--to",
        choices=tuple(TARGET_EXTENSIONS),
        default="canonical",
        help="names and layout to write, paddle for those of paddle.vision; default canonical",
    )
    cli.add_override_argument(
        parser,
        "option that the model must have, with the keys of a recipe's model section: depth, num_classes, ...; "
        "repeatable",
    )
    add(
        "--shift-div",
        metavar="N",
        type=int,
        help="for paddlevideo: 1/N of the channels is shifted each way, where N is the number of frames of its "
        f"training; default {conversion.DEFAULT_SHIFT_DIV}",
    )
    add(
        "--head",
        action="store_true",
        help="for face recognition: convert the classifier weight too, joined from the files of all ranks",
    )
    add("--keep-direction", action="store_true", help="for paddlevideo: keep the order of the channels")
    return parser.parse_args(argv)


def convert(arguments: argparse.Namespace) -> None:
    """Read, map, compare and write a state dict.

    Raises:
        UserError: The conversion is impossible; nothing has been written.
    """
    extensions = TARGET_EXTENSIONS[arguments.to]
    if not arguments.out.endswith(extensions):
        raise UserError(f"--out {arguments.out}: the name must end in {' or '.join(extensions)}")
    require_new(arguments.out, "--out")

    source = faces.read_checkpoint(arguments.source, arguments.head)
    unwrapped, left_out = names.without_wrappers(source.tensors)
    source = source._replace(tensors=unwrapped)
    if left_out:
        print(f"{arguments.source}: left out of the names: {left_out}")
    origin = names.detect(source.tensors) if arguments.origin == "auto" else arguments.origin
    record = recorded.read(arguments.source) if origin == "canonical" else recorded.NOTHING
    model = arguments.model or conversion.default_model(origin, source.tensors, record.model)
    has_head = HEAD_WEIGHT in source.tensors
    check_flags(arguments, model, origin, has_head)

    user_options = conversion.user_options(arguments.override, model)
    tensors: Tensors
    tensors, notes = conversion.to_canonical(source.tensors, origin, user_options)
    options = conversion.INFER[model](tensors)
    depth = options.get("depth", 0)  # of a ResNet
    options |= {**origins.architecture(model, origin, source.tensors, depth, record.arch), **user_options}
    print(
        f"{arguments.source}: names of {origin}; {model} with "
        + ", ".join(f"{key} {value}" for key, value in options.items())
    )
    report = match_state_dict(tensors, conversion.expected_shapes(model, options))
    print(report)
    check_report(report, arguments.source)
    if origin == "canonical":  # a checkpoint of an exact run holds float64
        wide = {name: array for name, array in tensors.items() if array.dtype == np.float64}
        tensors = {**tensors, **{name: array.astype(np.float32) for name, array in wide.items()}}
    conversion.require_float32(tensors)
    if model in ("resnet", "tsm"):
        if arguments.to != "canonical":
            options.pop("bn_eps", None)  # the projects to write for have no such option
        epsilons = origins.epsilon(origin, depth, record.arch), options.get("bn_eps", layouts.EPS)
        tensors = layouts.move_eps(tensors, epsilons[0] - epsilons[1])

    if is_paddlevideo_tsm(model, origin):
        tensors, shift_notes = conversion.reverse_shift(tensors, depth, arguments.shift_div, arguments.keep_direction)
        notes += shift_notes
        options["shift_direction"] = "past" if arguments.keep_direction else "future"
        options["shift_div"] = arguments.shift_div or conversion.DEFAULT_SHIFT_DIV
    data = record.data or origins.data_settings(model, origin, options)
    of_source = recorded.entry(arguments.source, source.metadata, "notes", list)
    notes = [*of_source, *notes, *origins.notes(model, origin, options, data, has_head, arguments.to)]
    for note in notes:
        print(f"note: {note}")

    metadata = conversion.metadata(model, origin, options, data, notes, arguments.source, source.paths)
    save(arguments.out, FROM_CANONICAL[arguments.to](tensors), {**source.metadata, **metadata})
    print(f"wrote {arguments.out}")


def is_paddlevideo_tsm(model: str, origin: str) -> bool:
    """Return whether the model has a temporal shift in the other direction."""
    return model == "tsm" and origin == "paddlevideo"


def check_flags(arguments: argparse.Namespace, model: str, origin: str, has_head: bool) -> None:
    """Raise UserError for flags that do not apply to the model or its origin."""
    shift_flags = arguments.keep_direction or arguments.shift_div is not None
    if shift_flags and not is_paddlevideo_tsm(model, origin):
        raise UserError(
            f"--keep-direction and --shift-div are for a tsm of paddlevideo, but this is a {model} of {origin}; "
            "leave them out"
        )
    if arguments.to != "canonical" and model not in ("resnet", "tsm"):
        raise UserError(f"--to {arguments.to}: that project has no matching {model}; leave --to out")
    if arguments.head and not has_head:
        raise UserError(
            f"--head: there is no classifier weight in {arguments.source} or in the files of other ranks; leave --head "
            "out to convert the backbone only"
        )


def check_report(report: MatchReport, source: str) -> None:
    """Raise UserError, with the remedy, unless the tensors are exactly those of the model."""
    if report.complete:
        return
    only_auxiliary = report.missing_keys and all(name.startswith("aux.") for name in report.missing_keys)
    raise UserError(
        f"{source} does not match the model; nothing is written. "
        + (
            "Convert it without its auxiliary head by -o auxiliary=false"
            if only_auxiliary
            else "Try another --model, --origin or -o"
        )
    )


def save(path: str, tensors: Tensors, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, or a plain state dict of PyTorch if the name ends in .pth."""
    if path.endswith(".safetensors"):
        files.write(path, tensors, metadata)
        return
    import torch

    with files.atomic_write(path) as temporary, open(temporary, "wb") as file:
        torch.save({name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}, file)
