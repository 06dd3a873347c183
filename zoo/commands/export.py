"""Export a checkpoint of any framework as an ONNX graph that is compared with the framework before it is written."""

import argparse
import math
from typing import Any

from zoo import program
from zoo.commands.new_file import require_new
from zoo.commands.options import add_override_argument
from zoo.data.errors import Finding, UserError
from zoo.export import assembly, low_precision, proof, samples
from zoo.export.proof import Row
from zoo.export.reference import Reference, StreamReference, check_stream
from zoo.frameworks import FRAMEWORKS
from zoo.models import require_graph
from zoo.run import recorded_recipe, trained
from zoo.run.weights import averages_note
from zoo.table import table
from zoo.weights import files
from zoo.weights.onnx_file import PRECISIONS, OnnxMetadata

EPILOG = """\
The graph has standard operators (opset 18) and any batch size; that of a segmentation model any height and width, too.
It is written as zoo/models/<model>/onnx.py describes it, with the weights of the checkpoint, whatever framework that is
of. Before it is saved, ONNX Runtime runs it on real samples, one and five at a time, of a segmentation model in two
sizes, and its output is compared with that of --framework. Nothing is written if they differ by more than 1e-4 of the
largest number; then the first layer that differs is named.

The samples are those of the recipe's validation data, or the files of --samples. The file records the recipe, the class
names, the normalization and what else a program needs (docs/predicting.md).

  --precision fp16    16-bit weights and values, fp32 input and output: half the size. The difference is at most 1e-2
  --precision int8    8-bit weights and values, quantized statically with 64 samples of the recipe's training data: a
                      quarter of the size. The metric over the recipe's validation data is printed before and after;
                      nothing is written if more than 0.01 of it is lost
  --stream            the graph of a single frame: `input` and the states `state_0` ... give `output` and `next_state_0`
                      ..., which are the states for the frame after it; the first are zeros. It is compared frame by
                      frame, and with the model of whole clips

examples
  %(prog)s runs/tsm_demo/checkpoints/best --out tsm_demo.onnx
  %(prog)s runs/resnet50_imagenet/checkpoints/best --out resnet50.onnx --with-preprocessing
  %(prog)s runs/arcface_ms1m/checkpoints/best --out r50.onnx --framework paddle --samples album/
  %(prog)s runs/deeplabv3plus_cityscapes/checkpoints/best --out int8.onnx --precision int8
  %(prog)s runs/tsm_online_k400/checkpoints/best --out online.onnx --stream

Exit codes: 0 done, 1 nothing was written, because the graph differs too much, 2 an error to fix on your side."""


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    export(parser().parse_args(argv))
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add(
        "weights",
        metavar="WEIGHTS",
        help=f"checkpoint folder, such as {recorded_recipe.EXAMPLE}, or name of zoo weights list",
    )
    add("--out", metavar="FILE", required=True, help="the file to write, NAME.onnx; it must not exist")
    add("--raw", action="store_true", help="take the weights of the last update, not their moving average (train.ema)")
    add("--framework", choices=FRAMEWORKS, default="torch", help="to compare with; default torch, whatever trained it")
    add("--device", metavar="NAME", default="auto", help="of the framework, as for train.py")
    add(
        "--with-preprocessing",
        action="store_true",
        help="take uint8 pixels, channels last, and normalize them in the graph; give probabilities, a class map or "
        "embeddings of length 1; logits and embeddings are compared first",
    )
    add(
        "--stream",
        action="store_true",
        help="of a causal TSM (model.shift_direction=causal), the graph of the next frame, with its state as input and "
        "output",
    )
    add(
        "--samples",
        metavar="FILE",
        nargs="+",
        help="compare on these files, or folders of them, and not on the recipe's validation data",
    )
    add(
        "--precision",
        choices=PRECISIONS,
        default="fp32",
        help="of weights and values; fp16 and int8 are made of a graph that is proven in fp32; default fp32",
    )
    add_override_argument(
        parser, "change one key of the checkpoint's recipe, such as -o data.eval_size=256; repeatable"
    )
    return parser


def export(arguments: argparse.Namespace) -> None:
    """Build the graph of a checkpoint, compare it, and write it. Raises Finding."""
    if not arguments.out.endswith(".onnx"):
        raise UserError(f"--out {arguments.out}: the name must end in .onnx")
    require_new(arguments.out, "--out")
    if files.is_onnx(arguments.weights):
        raise UserError(f"{arguments.weights} is an exported model; give the checkpoint that it was exported from")
    read = trained.read(arguments.weights, arguments.framework, arguments.device, arguments.override, arguments.raw)
    require_graph(read.model)
    if arguments.stream:
        check_stream(read, arguments.precision)
    if read.is_averaged:
        print(averages_note(arguments.weights))
    trainer = proof.load_trainer(read)  # first: MindSpore must be imported before onnx and what decodes videos
    needs_data = arguments.precision == "int8" or not arguments.samples
    splits = samples.load_splits(read) if needs_data else None
    rows = samples.of_split(read, splits.val) if splits else []
    if arguments.samples:
        rows = samples.of_files(read, arguments.samples)
    make = StreamReference if arguments.stream else Reference
    reference = make(read, trainer, samples.batches(read, rows), arguments.with_preprocessing, raw_output=True)
    model = reference.build()
    compared = prove(reference, model)
    if arguments.with_preprocessing:  # second: probabilities near 0 and 1, and classes, hide differences of logits
        reference = reference._replace(raw_output=False)
        model = reference.build()
        compared += prove(reference, model)
    if arguments.precision == "fp16":
        model = low_precision.to_fp16(model)
        compared = compare(reference, model, "fp16")
        low_precision.require_close(compared)
    if splits and arguments.precision == "int8":
        model = low_precision.quantize(reference, splits)
        compared = compare(reference, model, "int8")
    metadata = assembly.describe(
        read,
        reference.shape,
        arguments.with_preprocessing,
        protocol=samples.protocol(read, splits),
        precision=arguments.precision,
        opset=model.opset_import[0].version,
        max_difference=proof.largest(compared),
        states=reference.states,
    )
    write(arguments.out, model, metadata)


def prove(reference: Reference, model: Any) -> list[Row]:
    """Compare a graph in fp32 with the framework, and print the result. Raises Finding."""
    compared = compare(reference, model, "fp32", proof.LIMIT)
    difference = proof.largest(compared)
    if not difference <= proof.LIMIT:
        raise Finding(
            f"the graph differs from {reference.source.cfg.framework} by {difference:.1e}, more than "
            f"{proof.LIMIT:.0e}; nothing is written. {reference.cause(compared)}"
        )
    return compared


def compare(reference: Reference, model: Any, precision: str, limit: float = math.inf) -> list[Row]:
    """Compare a graph with the framework, and print the result; see Reference.compare."""
    compared = reference.compare(model, limit)
    framework = reference.source.cfg.framework
    output = reference.kind.replace("_", " ")
    print(f"{framework} and the {precision} graph in ONNX Runtime, {output}, {proof.DEFINITION}:")
    cells = [(" x ".join(map(str, row.shape)), f"{row.difference:.1e}", row.title) for row in compared]
    print("\n".join(table(cells, ("batch", "difference", ""))), flush=True)
    return compared


def write(path: str, model: Any, metadata: OnnxMetadata) -> None:
    assembly.attach(model, metadata)
    content = model.SerializeToString()
    with files.atomic_write(path) as temporary, open(temporary, "xb") as file:
        file.write(content)
    print(
        f"{path}: {len(content) / 1e6:.1f} MB, {metadata.precision}, opset {metadata.opset}, input "
        f"{metadata.input.layout} {metadata.input.dtype}, output {metadata.output.kind}"
    )
