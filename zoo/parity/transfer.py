"""A checkpoint of any model moved to another framework: its tensors find those of the other model, and it is proven."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.data.errors import UserError
from zoo.parity import checkpoints, engine, mapping, match
from zoo.parity.causes import some
from zoo.parity.differences import FP64_SHARE, SAFETY, Difference, Records, differences
from zoo.parity.engine import Opened, Request
from zoo.parity.nesting import EVALUATION
from zoo.parity.side import WEIGHTS, Order
from zoo.parity.verdict import Finding, first_beyond, outputs_of
from zoo.weights import files

COPY, SAVED = "checkpoint.safetensors", "saved"


class Transferred(NamedTuple):
    """Result of a transfer.

    Attributes:
        titles: of the two sides.
        left_out: tensors of the file that the model has not.
        relative: largest difference of the outputs in fp32, of the largest value.
        finding: the first module that differs beyond rounding, if the outputs do.
    """

    out: str
    titles: tuple[str, str]
    matched: match.Match
    left_out: list[str]
    relative: float
    finding: Finding | None

    def __str__(self) -> str:
        source, target = self.titles
        lines = [f"{target} from {source}: {self.matched.found}"]
        lines += [f"left out of the file, since {source} has not got them: {some(self.left_out)}"] * bool(self.left_out)
        lines += [f"left out, since {target} has not got them: {some(self.matched.unused)}"] * bool(self.matched.unused)
        if self.finding is None:
            return "\n".join(
                [*lines, f"wrote {self.out}: its outputs are equal within rounding, to {self.relative:.1e}"]
            )
        lines.append(f"wrote {self.out}, BUT ITS OUTPUTS DIFFER by {self.relative:.1e}, beyond rounding; at first:")
        return "\n".join([*lines, str(self.finding), "`zoo parity` names all modules that differ, and causes"])


def transfer(
    checkpoint: str, request: Request, out: str, given: str | None = None, kept: str | None = None
) -> Transferred:
    """Move a checkpoint from the first side to the second one, and compare their outputs.

    Args:
        checkpoint: file of the first side's framework, or .safetensors; the .onnx file that it is.
        request: its two sides and the inputs by which they are compared.
        out: file in the format of the second side's framework, or .safetensors.
        given: file of a mapping: names in the first model by those in the second one.
        kept: file to write the mapping to, even one that is not complete.

    Raises:
        UserError: a file cannot be read or written, does not fit, or tensors do not find each other.
    """
    source, target = request.sides
    _require_usable(request, out)
    for path in filter(None, (out, kept)):
        files.refuse_existing(path)
    names = None if given is None else mapping.load(given)
    is_model = source.framework == "onnx" and checkpoint == source.model  # which has its weights
    tensors = None if is_model else files.read(checkpoint)[0]
    with tempfile.TemporaryDirectory(prefix="transfer-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        engine.write_inputs(request, folder)
        first, second = engine.open_sides(request, folder, stack)
        matched = match.match(first.outline, second.outline, names)
        if kept:
            mapping.save(kept, matched)
        match.require_complete(matched, (first.outline, second.outline), target.title, "--map FILE")
        engine.write_match(second, matched)
        left_out = _restore(first, tensors, checkpoint)
        saved = str(second.session.folder / (SAVED + os.path.splitext(out)[1]))
        second.session.ask({"do": "save", "partner": str(first.session.folder), "path": saved})
        _restore(second, files.read(saved)[0], out)
        _require_equal(first, second, matched, out)
        proofs, rounded = _records(first, second)
        _requireoutputs_of(proofs)
        with files.atomic_write(out) as part:
            shutil.copyfile(saved, part)
    natural = [_visible(each, proofs) for each in differences(proofs, rounded)]
    outputs, relative = outputs_of(natural), max(each.relative for each in outputs_of(differences(rounded, {})))
    is_beyond = any(output.is_beyond for output in outputs)
    finding = first_beyond(natural, proofs[source.title], proofs[target.title])[0] if is_beyond else None
    return Transferred(out, (source.title, target.title), matched, left_out, relative, finding)


def _require_usable(request: Request, out: str) -> None:
    """Raise UserError if a side cannot be one of a transfer, or the file has a name of another format."""
    for side in request.sides:
        if side.precision or side.compile:
            raise UserError(f"{side.title}: weights are moved in fp32, and not compiled; leave that out of the title")
    target = request.sides[1].framework
    formats = (".safetensors", *checkpoints.FORMATS.get(target, ()))
    if not out.endswith(formats):
        raise UserError(f"--out {out}: for {target}, the name must end in {' or '.join(formats)}")


def _restore(opened: Opened, tensors: Mapping[str, np.ndarray] | None, label: str) -> list[str]:
    """Let a side load a checkpoint, or None for the weights that it has; return what of it the model has not."""
    path = None
    if tensors is not None:
        files.write(path := str(opened.session.folder / COPY), tensors)
    return opened.session.ask({"do": "restore", "path": path, "label": label})["left_out"]


def _require_equal(first: Opened, second: Opened, matched: match.Match, out: str) -> None:
    """Compare the weights that the second model has read from the file with those that it was to get."""
    weights, own = (files.read(str(opened.session.folder / WEIGHTS))[0] for opened in (first, second))
    for name, array in mapping.convert(matched, weights).items():
        if not np.array_equal(array.astype(np.float32), own[name].astype(np.float32), equal_nan=True):
            raise UserError(
                f"{out}: {name} would not be what {', '.join(matched.tensors[name].names)} is, as if it was shared "
                "with another tensor; nothing is written"
            )


def _records(first: Opened, second: Opened) -> tuple[Records, Records]:
    """Return records of both in evaluation mode: in the finest precision that both have, and in fp32."""
    found, partner = list[Records](), str(first.session.folder)
    for precisions in (engine.finest(first, second), (engine.COARSE, engine.COARSE)):
        names = [f"{engine.NATURAL}-{precision}" for precision in precisions]
        engine.ask(first, Order(names[0], precisions[0], trains=False))
        engine.ask(second, Order(names[1], precisions[1], partner=partner, reference=names[0], trains=False))
        found.append({o.session.side.title: engine.record_of(o, name) for o, name in zip((first, second), names)})
    return found[0], found[1]


def _requireoutputs_of(records: Records) -> None:
    """Raise UserError if the models return different numbers of tensors."""
    counts = {title: record.passes[EVALUATION][0].outputs for title, record in records.items()}
    if len({*counts.values()}) > 1:
        found = " and ".join(f"{title} {count}" for title, count in counts.items())
        raise UserError(
            f"the models return different numbers of tensors, {found}; wrap one so that it returns the same"
        )


def _visible(difference: Difference, proofs: Records) -> Difference:
    """Return a difference in fp64 with the limit of what the rounding of fp32 hides, such as that of an epsilon."""
    is_fine = all(record.precision == engine.FINE for record in proofs.values())
    return difference._replace(limit=difference.limit / (SAFETY * FP64_SHARE)) if is_fine else difference
