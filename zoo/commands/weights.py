"""Published weights by name: list them, download them to the shared folder; push checkpoints to a hub."""

import argparse
import fnmatch

import yaml

from zoo import program
from zoo.data.errors import UserError
from zoo.run import hub
from zoo.table import table, terminal_width
from zoo.weights import files, registry

EPILOG = """\
  list [PATTERN]    names that match a pattern of the shell, such as 'resnet50*'; of a single one all that is known
  download NAME     download, check and convert weights; a call that was cut goes on where it was
  push RUN ADDRESS  copy the best checkpoint of a run, or a checkpoint, with a card to the Hugging Face Hub, hf://OWNER/NAME;
                    without the paths in its recipe

A name, or hf://OWNER/NAME[@REVISION], stands wherever weights are named: zoo train, finetune, evaluate, predict, export
and zoo.create_model, which download what is missing. Published weights lie in $ZOO_HOME/weights, by default
~/.cache/vision-zoo/weights. Without a network, place the published file there.

examples
  %(prog)s list 'tsm*'
  %(prog)s download resnet50.tv_in1k_v1
  zoo predict photos --weights resnet50.tv_in1k_v1
  %(prog)s push runs/photos hf://me/photos --license apache-2.0 --private

Exit codes: 0 done, 2 an error to fix on your side."""


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    if arguments.action == "push":
        print(hub.push(arguments.name, arguments.address, arguments.license, arguments.private), end="")
        return 0
    if arguments.action == "download":
        print(registry.prepare(registry.find(arguments.name, is_backbone=True)))
        return 0
    found = [registry.table()[name] for name in fnmatch.filter(registry.table(), arguments.name or "*")]
    if not found:
        raise UserError(f"no published weights match {arguments.name}; zoo weights list shows all")
    if len(found) == 1:
        entry = found[0]
        facts = {key: value for key, value in entry._asdict().items() if value}
        sha256 = f"begins with {entry.sha256}, which is checked" if entry.sha256 else "not published, not checked"
        path = registry.paths(entry)[0]
        got = files.recorded_digest(path)
        facts |= {
            "sha256": sha256,
            **({"sha256_got": got} if got else {}),
            "path": path,
            "here": registry.is_at_hand(entry),
        }
        print(yaml.safe_dump(facts, sort_keys=False, width=terminal_width() or 110), end="")
        return 0
    here = {entry.name: "yes" if registry.is_at_hand(entry) else "" for entry in found}
    rows = [(entry.name, entry.mib, entry.metric, here[entry.name], entry.protocol) for entry in found]
    print("\n".join(table(rows, ("name", "MiB", "metric", "here", "protocol, as published"), width=terminal_width())))
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("action", choices=("list", "download", "push"))
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="of weights, a pattern of names to list, or a run to push"
    )
    parser.add_argument("address", metavar="ADDRESS", nargs="?", help="hf://OWNER/NAME to push to")
    parser.add_argument("--license", metavar="ID", default="unknown", help="of what is pushed, as the Hub names it")
    parser.add_argument("--private", action="store_true", help="push to a private repository, if it is a new one")
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    arguments = parser().parse_args(argv)
    if arguments.action == "download" and not arguments.name:
        raise UserError("zoo weights download: name the weights; zoo weights list shows them")
    if (arguments.action == "push") != (arguments.address is not None):
        raise UserError("zoo weights push: name a run and an address, such as hf://OWNER/NAME; the others take none")
    return arguments
