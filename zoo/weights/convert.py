"""Conversion of a file of weights: read it, map its names, compare it with the model, write it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.models import load_spec
from zoo.models.arcface.spec import HEAD_WEIGHT
from zoo.weights import (
    architectures,
    backbones,
    checkpoints,
    conversion,
    files,
    layouts,
    names,
    origins,
    pdparams,
    recorded,
)
from zoo.weights.match import MatchReport, match_state_dict, require_usable

Tensors = Mapping[str, np.ndarray]
TARGET_EXTENSIONS = {  # by --to
    "canonical": (".safetensors",),
    "torchvision": (".safetensors", ".pth"),
    "paddle": (files.PADDLE, ".safetensors"),
}
FROM_CANONICAL: dict[str, Callable[[Tensors], Tensors]] = {  # by --to
    "canonical": dict,
    "torchvision": layouts.to_torchvision,
    "paddle": layouts.to_paddle,
}


class Wanted(NamedTuple):
    """Wishes of a user for a conversion: the options of zoo convert."""

    model: str | None = None
    origin: str = "auto"
    to: str = "canonical"
    override: Sequence[str] = ()
    shift_div: int | None = None
    head: bool = False
    keep_direction: bool = False


def convert(
    path: str,
    out: str,
    wanted: Wanted,
    print_line: Callable[[str], object],
    further: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Read, map, compare and write a state dict.

    Args:
        path: Of the file, or a folder of PLSC.
        out: File to write, with one of TARGET_EXTENSIONS; it must not exist.
        print_line: Receives what was found, and notes for the user.
    """
    source = checkpoints.read(path, wanted.head)
    unwrapped, left_out = names.without_wrappers(source.tensors)
    source = source._replace(tensors=unwrapped)
    if left_out:
        print_line(f"{path}: left out of the names: {left_out}")
    if wanted.origin in backbones.ORIGINS:
        inner, left_out = backbones.extract(source.tensors, path)
        source = source._replace(tensors=inner)
        if left_out:
            print_line(f"{path}: only the ResNet in it is converted, without {left_out}")
    origin = names.detect(source.tensors) if wanted.origin == "auto" else wanted.origin
    record = recorded.read(path) if origin == "canonical" else recorded.NOTHING
    model = wanted.model or architectures.default_model(origin, source.tensors, record.model)
    check_flags(path, wanted, model, origin, HEAD_WEIGHT in source.tensors)

    user_options = architectures.user_options(wanted.override, model)
    tensors: Tensors
    with parsing(f"{path}: has no tensors of a {model} by names of {origin}", "give another --model or --origin"):
        tensors, notes = conversion.to_canonical(source.tensors, origin, user_options)
        options = architectures.INFER[model](tensors)
    depth = options.get("depth", 0)  # of a ResNet
    options |= {**origins.architecture(model, origin, source.tensors, depth, record.arch), **user_options}
    print_line(
        f"{path}: names of {origin}; {model} with " + ", ".join(f"{key} {value}" for key, value in options.items())
    )
    report = match_state_dict(tensors, architectures.expected_shapes(model, options))
    print_line(str(report))
    check_report(report, path)
    require_usable(tensors, path)
    if origin == "canonical":  # a checkpoint of an exact run holds float64
        wide = {name: array for name, array in tensors.items() if array.dtype == np.float64}
        tensors = {**tensors, **{name: array.astype(np.float32) for name, array in wide.items()}}
    conversion.require_float32(tensors)
    if model in ("resnet", "tsm"):
        if wanted.to != "canonical":
            options.pop("bn_eps", None)  # the projects to write for have no such option
        epsilons = origins.epsilon(origin, depth, record.arch), options.get("bn_eps", layouts.EPS)
        tensors = layouts.move_eps(tensors, epsilons[0] - epsilons[1])

    if is_paddlevideo_tsm(model, origin):
        tensors, shift_notes = conversion.reverse_shift(tensors, depth, wanted.shift_div, wanted.keep_direction)
        notes += shift_notes
        options["shift_direction"] = "past" if wanted.keep_direction else "future"
        options["shift_div"] = wanted.shift_div or conversion.DEFAULT_SHIFT_DIV
    data = record.data or origins.data_settings(model, origin, options)
    has_head = any(map(load_spec(model).is_head, tensors))
    of_source = recorded.entry(path, source.metadata, "notes", list)
    notes = [*of_source, *notes, *origins.notes(model, origin, options, data, has_head, wanted.to)]
    for note in notes:
        print_line(f"note: {note}")

    metadata = conversion.metadata(model, origin, options, data, notes, path, source.paths)
    save(out, FROM_CANONICAL[wanted.to](tensors), {**source.metadata, **metadata, **further})
    print_line(f"wrote {out}")


def is_paddlevideo_tsm(model: str, origin: str) -> bool:
    """Return whether the model has a temporal shift in the other direction."""
    return model == "tsm" and origin == "paddlevideo"


def check_flags(path: str, wanted: Wanted, model: str, origin: str, has_head: bool) -> None:
    """Raise UserError for flags that do not apply to the model or its origin."""
    shift_flags = wanted.keep_direction or wanted.shift_div is not None
    if shift_flags and not is_paddlevideo_tsm(model, origin):
        raise UserError(
            f"--keep-direction and --shift-div are for a tsm of paddlevideo, but this is a {model} of {origin}; "
            "leave them out"
        )
    if wanted.to != "canonical" and model not in ("resnet", "tsm"):
        raise UserError(f"--to {wanted.to}: that project has no matching {model}; leave --to out")
    if wanted.head and not has_head:
        raise UserError(
            f"--head: there is no classifier weight in {path} or in the files of other ranks; leave --head "
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
    """Write a safetensors file, or a state dict of PyTorch (.pth) or Paddle (.pdparams), which have no metadata."""
    if path.endswith(".safetensors"):
        files.write(path, tensors, metadata)
        return
    with files.atomic_write(path) as temporary, open(temporary, "wb") as file:
        if path.endswith(files.PADDLE):
            pdparams.write(file, tensors)
            return
        import torch

        torch.save({name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}, file)
