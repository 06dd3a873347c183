"""Programs behind figures of the documentation: python -m evidence COMMAND [OPTIONS]"""

import sys

from zoo import cli, program

COMMANDS = {
    "peers": ("evidence.commands.peers", "compare loaders with those of other projects"),
    "peers-updates": ("evidence.commands.peers_updates", "compare updates with those of other projects"),
    "peers-curves": ("evidence.commands.peers_curves", "lay a training curve on that of the upstream project"),
    "scale": ("evidence.commands.scale", "throughput at more cards than there are"),
    "amp": ("evidence.commands.amp", "time updates with --amp beside those in fp32 on a CPU"),
    "dlperf": ("evidence.dlperf", "speeds from logs of DLPerf"),
    "platforms": ("evidence.platforms", "systems and versions of Python that have wheels, by extra"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command that `argv` begins with; return its exit code, or 2 if there is no such command."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    program.keep_printing()
    if name in COMMANDS:
        program.title = f"python -m evidence {name}"
        return cli.call(COMMANDS[name][0], rest)
    lines = [f"  {each:14}{text}" for each, (_, text) in COMMANDS.items()]
    print("\n".join(["usage: python -m evidence COMMAND [OPTIONS]", "", *lines]))
    return 0 if name in cli.HELP else 2


if __name__ == "__main__":
    sys.exit(main())
