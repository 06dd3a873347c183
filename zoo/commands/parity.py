"""Prove that models of any frameworks compute the same, or name the modules where they part."""

from collections.abc import Sequence

from zoo import program
from zoo.parity import report
from zoo.parity.engine import UPDATES, Request, request_of, run
from zoo.weights import files

EPILOG = """\
A side is FRAMEWORK[@LABEL][:DEVICE][:PRECISION][:compile]=MODEL. The frameworks are torch, paddle, mindspore, jax, onnx
and numpy. MODEL is FILE.py:FUNCTION or MODULE:FUNCTION, perhaps with (ARGUMENTS), which returns the model; or a file
.onnx. The first side is the reference: all others get its weights, which find each other by names, or by the order,
shapes and classes of the modules that have them.

Each side runs in a process of its own: forward passes in evaluation and in training mode, the gradients of all tensors,
and with --optimizer updates; in fp64, where it has that, and in fp32, which shows the rounding. Each module is judged
as it is, and alone: with the inputs, and in the backward pass the gradients, that the reference recorded. So all
modules that differ are named, and not the first alone; a cause is named if arithmetic shows it.

examples
  %(prog)s torch=mine.py:build paddle=mine_paddle.py:build --input x=float32:4,3,64,64
  %(prog)s torch=mine.py:build jax=mine_jax.py:build --python jax=.venv-jax/bin/python --channels-last jax \\
      --input x=float32:4,3,64,64 --input label=int64:4:0:10 --loss cross_entropy --optimizer "sgd(lr=0.1)"
  %(prog)s torch@2.11=mine.py:build torch@new=mine.py:build --python torch@2.11=.venv-old/bin/python --input x=...
  %(prog)s torch=mine.py:build torch:bf16=mine.py:build torch:compile=mine.py:build --input ids=int64:2,128:0:1000

`zoo parity transfer` moves a checkpoint of one of them to another.

Exit codes: 0 they agree, 1 they differ, 2 an error to fix on your side."""


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_intermixed_args(argv)  # sides may stand behind options
    if arguments.html:
        files.refuse_existing(arguments.html)
    request = request_from(arguments)
    result = run(request, arguments.out)
    print(result)
    if arguments.html:
        report.write_result(arguments.html, " and ".join(arguments.sides), result)
        print(f"all modules: {arguments.html}")
    return 0 if result.agrees else 1


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("sides", nargs="+", metavar="SIDE=MODEL", help="two or more; the first one is the reference")
    add_input_arguments(parser)
    add(
        "--loss",
        action="append",
        default=[],
        metavar="NAME | SIDE=FUNCTION",
        help="cross_entropy, mse or binary_cross_entropy, of the first output with the input `label`, which no model "
        "gets; or for each side a function of outputs and inputs; default: random weights of the outputs' elements",
    )
    add(
        "--optimizer",
        action="append",
        default=[],
        metavar="NAME(KEY=VALUE) | SIDE=FUNCTION",
        help="of the zoo, such as sgd(lr=0.1); or for each side a function of the parameters, or of `model`, that "
        "returns one or several of its own",
    )
    add("--updates", type=int, default=UPDATES, metavar="N", help="with --optimizer; default 3")
    add("--accept", action="append", default=[], metavar="MODULE | FACT", help="whose difference is known")
    add("--map", action="append", default=[], metavar="SIDE=FILE", help="names of tensors in the reference, YAML")
    add("--out", metavar="DIR", help="folder to keep the records in")
    add("--html", metavar="FILE", help="page of all modules")
    return parser


def add_input_arguments(parser: program.Parser) -> None:
    """Add the options of the inputs, and of the processes that get them."""
    add = parser.add_argument
    add(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="DTYPE:SHAPE, of normal numbers or integers from 0 to 9; DTYPE:SHAPE:LOW:HIGH; or a file .npy or .npz; "
        "a dot in NAME makes a dictionary; repeatable",
    )
    add("--python", action="append", default=[], metavar="SIDE=PATH", help="the interpreter of a side")
    add("--channels-last", action="append", default=[], metavar="SIDE", help="takes images with channels last")
    add("--seed", type=int, default=0, metavar="N", help="of the inputs; default 0")


def request_from(arguments) -> Request:
    """Return the request of a command line."""
    return request_of(
        program.pairs("SIDE=MODEL", arguments.sides),
        program.pairs("--input", arguments.input),
        one_or_pairs("--loss", arguments.loss),
        one_or_pairs("--optimizer", arguments.optimizer),
        arguments.updates,
        arguments.accept,
        program.pairs("--map", arguments.map),
        program.pairs("--python", arguments.python),
        arguments.channels_last,
        arguments.seed,
    )


def one_or_pairs(option: str, words: Sequence[str]) -> str | dict[str, str] | None:
    """Return the one word for all sides, or a word for each side; None if there are none."""
    if len(words) == 1 and ("=" not in words[0].partition("(")[0]):
        return words[0]
    return program.pairs(option, words) or None
