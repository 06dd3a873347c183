"""The command `zoo`: finds the module of a command and runs it. A module is imported when its command is called."""

import importlib
import os
import sys
from collections.abc import Callable, Iterable

import zoo
from zoo import program
from zoo.data import extras
from zoo.data.addresses import RemoteError
from zoo.data.errors import UserError, printable, similar_name
from zoo.table import terminal_width, wrapped

COMMANDS = {
    "train": ("zoo.commands.train", "train a recipe"),
    "finetune": ("zoo.commands.finetune", "train on a folder of your own files, with a recipe that suits them"),
    "sweep": ("zoo.commands.sweep", "train with every combination of some values, and compare them"),
    "find-lr": ("zoo.commands.find_lr", "try growing learning rates, and suggest one"),
    "evaluate": ("zoo.commands.evaluate", "evaluate a checkpoint or an exported model"),
    "predict": ("zoo.commands.predict", "classes, class maps or embeddings of your own files"),
    "export": ("zoo.commands.export", "write a checkpoint as an ONNX file, compared with the framework"),
    "weights": ("zoo.commands.weights", "list and download published weights by name"),
    "convert": ("zoo.commands.convert", "weights of other projects, and back"),
    "compare": ("zoo.commands.compare", "compare frameworks update by update"),
    "compare seeds": ("zoo.commands.seeds", "compare frameworks by the metrics of several seeds"),
    "parity": ("zoo.commands.parity", "compare models of any frameworks, module by module"),
    "parity transfer": ("zoo.commands.transfer", "move a checkpoint of any model to another framework"),
    "data prepare": ("zoo.commands.prepare", "check a data set and write copies that load faster"),
    "data import": ("zoo.commands.import_labels", "masks from labels of LabelMe, COCO, CVAT, Label Studio ..."),
    "data align": ("zoo.commands.align", "cut faces out of photos, aligned"),
    "data check": ("zoo.commands.check_data", "find missing classes, copies and unreadable files"),
    "launch": ("zoo.commands.launch", "train in several processes, on one host or many"),
    "doctor": ("zoo.commands.doctor", "examine what works on this machine"),
    "completion": ("zoo.completion", "print the script by which a shell completes commands and options"),
    "bench update": ("zoo.bench.commands.update", "time the update against a bare loop of its framework"),
    "bench data": ("zoo.bench.commands.data", "time the input pipeline"),
    "bench deploy": ("zoo.bench.commands.deploy", "time exported models"),
    "bench stream": ("zoo.bench.commands.stream", "time the frames of a stream"),
    "bench matrix": ("zoo.bench.commands.matrix", "time recipes, frameworks and precisions in turn"),
    "bench estimate": ("zoo.bench.estimate", "operations and memory of a recipe, without running it"),
    "bench profile": ("zoo.bench.commands.profile", "time of each operator of an update"),
    "reproduce": ("zoo.bench.commands.reproduce", "repeat a published speed report, and compare with it"),
    "runs": ("zoo.bench.commands.runs", "list runs and compare them"),
    "publish": ("zoo.bench.commands.publish", "write the records of runs to one file"),
    "verify": ("zoo.bench.commands.verify", "recompute the numbers of such a file"),
    "report": ("zoo.bench.commands.report", "tables and plots of runs and logs"),
    "airank": ("zoo.bench.commands.airank", "submissions to AI-Rank, and logs for MLPerf"),
    "airank log": ("zoo.bench.airank_log", "check logs against AI-Rank's rules"),
}
MOVED = ("bench scale", "bench peers", "bench peers-updates", "bench peers-curves", "report dlperf")  # to evidence/
HELP = ("-h", "--help")


def main(argv: list[str] | None = None) -> int:
    """Run the command that `argv` begins with.

    Returns:
        The exit code of the command; 2 if there is no such command.
    """
    argv = sys.argv[1:] if argv is None else argv
    program.keep_printing()
    if not argv or argv[0] in HELP:
        print(usage(COMMANDS))
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"zoo {zoo.__version__}")
        return 0
    if (asked := " ".join(argv[:2])) in MOVED:
        print(f"error: `zoo {asked}` is now `python -m evidence {argv[1]}`, in a checkout", file=sys.stderr)
        return 2
    for words in (2, 1):
        name = " ".join(argv[:words])
        if len(argv) >= words and name in COMMANDS:
            return run(name, argv[words:])
    group = [name for name in COMMANDS if name.startswith(f"{argv[0]} ")]
    if group and argv[1:2] and argv[1] in HELP:
        print(usage(group))
        return 0
    if group and not argv[1:]:
        print(f"error: `zoo {argv[0]}` needs one of its commands: {', '.join(group)}", file=sys.stderr)
        return 2
    asked = " ".join(argv[:2] if group else argv[:1])
    hint = similar_name(asked, group or [name.split()[0] for name in COMMANDS])
    print(f"error: there is no command `zoo {asked}`{hint or '; see zoo --help'}", file=sys.stderr)
    return 2


def run(name: str, argv: list[str]) -> int:
    """Run a command; return its exit code."""
    program.title = typed(name)
    return call(COMMANDS[name][0], argv)


def call(module: str, argv: list[str]) -> int:
    """Import the module of a command and call its main(argv).

    Returns:
        The exit code of the command: 0 fine, 1 findings, 2 an error that the user can mend, 130 Ctrl-C.
    """
    try:
        with extras.named():
            command: Callable[[list[str]], int] = importlib.import_module(module).main
            return command(argv)
    except UserError as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    except RemoteError as error:
        print(printable(f"error: {error.filename}: {error.strerror}"), file=sys.stderr)
        return UserError.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def typed(name: str) -> str:
    """Return the program and command that the user typed: `zoo data check`, or `data.py check` in a checkout."""
    script, (first, *rest) = os.path.basename(sys.argv[0]), name.split()
    return " ".join([script, *rest] if script == f"{first}.py" else ["zoo", name])


def usage(names: Iterable[str]) -> str:
    rows = [f"  {name:20}  {COMMANDS[name][1]}" for name in names]
    text = "\n".join(["usage: zoo COMMAND [OPTIONS]; zoo COMMAND --help shows those of a command", "", *rows])
    return wrapped(text, terminal_width())
