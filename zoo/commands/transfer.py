"""Move a checkpoint of any model to another framework, and prove that both models then compute the same."""

from zoo import program
from zoo.commands.parity import add_input_arguments
from zoo.parity.engine import request_of
from zoo.parity.transfer import transfer

EPILOG = """\
SIDE is FRAMEWORK[@LABEL][:DEVICE] of torch, paddle, mindspore, jax and onnx; MODEL is FILE.py:FUNCTION or
MODULE:FUNCTION, perhaps with (ARGUMENTS), which returns the model. The weights find each other as in `zoo parity`: by
names, or by the order, shapes and classes of the modules that have them. What is ambiguous is named with its
candidates: with --save-map, the pairs that are certain are written to a file, to which you add the others for --map.

Both models are built, each in a process of its own; the first one loads the file, the second one the file that was
written. Their outputs for the inputs are compared in evaluation mode, in fp64 where both have it, and in fp32.

examples
  %(prog)s model.pth --from torch=mine.py:build --to paddle=mine_paddle.py:build --input x=float32:2,3,64,64 \\
      --out model.pdparams
  %(prog)s model.pth --from "torch=timm:create_model('resnet18')" --to torch@own=mine.py:build \\
      --input x=float32:2,3,64,64 --save-map names.yaml --out own.safetensors

Exit codes: 0 moved, 1 moved, but the outputs differ, 2 an error to fix on your side; nothing is written."""


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    sides = program.pairs("--from, --to", [arguments.source, arguments.target])
    request = request_of(
        sides,
        program.pairs("--input", arguments.input),
        python=program.pairs("--python", arguments.python),
        channels_last=arguments.channels_last,
        seed=arguments.seed,
    )
    result = transfer(arguments.checkpoint, request, arguments.out, arguments.map, arguments.save_map)
    print(result)
    return 0 if result.finding is None else 1


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add(
        "checkpoint",
        metavar="IN",
        help=".safetensors, .pth, .pt, .bin, .pdparams, .ckpt or, of onnx=IN, .onnx; no code is run from it",
    )
    add("--from", dest="source", required=True, metavar="SIDE=MODEL", help="the model that the file is of")
    add("--to", dest="target", required=True, metavar="SIDE=MODEL", help="the model that gets the weights")
    add(
        "--out",
        required=True,
        metavar="FILE",
        help="new file: .safetensors; .pth for torch, .pdparams for paddle, .ckpt for mindspore",
    )
    add("--map", metavar="FILE", help="names of tensors in the first model by those in the second one, YAML")
    add("--save-map", metavar="FILE", help="new file for the names that were found")
    add_input_arguments(parser)
    return parser
