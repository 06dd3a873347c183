"""The command `zoo`: finds the module of a command and runs it. A module is imported when its command is called."""

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from zoo.data.errors import UserError, similar_name

COMMANDS = {
    "train": ("zoo.commands.train", "train a recipe"),
    "evaluate": ("zoo.commands.evaluate", "evaluate a checkpoint or an exported model"),
    "predict": ("zoo.commands.predict", "classes, class maps or embeddings of your own files"),
    "export": ("zoo.commands.export", "write a checkpoint as an ONNX file, compared with the framework"),
    "convert": ("zoo.commands.convert", "weights of other projects, and back"),
    "compare": ("zoo.commands.compare", "compare frameworks update by update"),
    "compare seeds": ("zoo.commands.seeds", "compare frameworks by the metrics of several seeds"),
    "data prepare": ("zoo.commands.prepare", "check a data set and write copies that load faster"),
    "data check": ("zoo.commands.check_data", "find missing classes, copies and unreadable files"),
    "launch": ("zoo.commands.launch", "train in several processes, on one host or many"),
    "doctor": ("zoo.commands.doctor", "examine what works on this machine"),
    "bench update": ("zoo.bench.commands.update", "time the update against a bare loop of its framework"),
    "bench data": ("zoo.bench.commands.data", "time the input pipeline"),
    "bench deploy": ("zoo.bench.commands.deploy", "time exported models"),
    "bench stream": ("zoo.bench.commands.stream", "time the frames of a stream"),
    "bench matrix": ("zoo.bench.commands.benchmark", "time recipes, frameworks and precisions in turn"),
    "bench estimate": ("zoo.bench.commands.estimate", "operations and memory of a recipe, without running it"),
    "bench scale": ("zoo.bench.commands.scale", "throughput at more cards than there are"),
    "bench profile": ("zoo.bench.commands.profiler", "time of each operator of an update"),
    "bench peers": ("zoo.bench.peers.loading", "compare loaders with those of other projects"),
    "bench peers-updates": ("zoo.bench.peers.steps", "compare updates with those of other projects"),
    "bench gpu": ("zoo.bench.commands.gpu_check", "everything that a GPU should show"),
    "report": ("zoo.bench.commands.report", "tables and plots of runs and logs"),
    "report dlperf": ("zoo.bench.commands.extract", "speeds from logs of DLPerf"),
    "airank": ("zoo.bench.commands.airank", "submissions to AI-Rank, and logs for MLPerf"),
    "airank log": ("zoo.bench.commands.check_log", "check logs against AI-Rank's rules"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command that `argv` begins with.

    Returns:
        The exit code of the command; 2 if there is no such command.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"zoo {installed_version()}")
        return 0
    for words in (2, 1):
        name = " ".join(argv[:words])
        if len(argv) >= words and name in COMMANDS:
            return run(name, argv[words:])
    groups = [name.split()[1] for name in COMMANDS if name.startswith(f"{argv[0]} ")]
    if groups:
        print(f"error: zoo {argv[0]}: name what to do: {', '.join(groups)}", file=sys.stderr)
    else:
        print(
            f"error: there is no command {argv[0]!r}{similar_name(argv[0], COMMANDS)}; see zoo --help", file=sys.stderr
        )
    return 2


def run(name: str, argv: list[str]) -> int:
    """Import the module of a command and call its main(argv)."""
    command: Callable[[list[str]], int] = importlib.import_module(COMMANDS[name][0]).main
    try:
        return command(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def usage() -> str:
    """Return the list of commands."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: zoo COMMAND [OPTIONS]; zoo COMMAND --help shows those of a command", "", *rows])


def installed_version() -> str:
    """Return the version of the installed package; that of a bare checkout is not known."""
    try:
        return version("vision-zoo")
    except PackageNotFoundError:
        return "of a checkout that is not installed"
