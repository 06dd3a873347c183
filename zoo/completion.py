"""Print the script by which a shell completes commands, options, recipes and keys, made by shtab."""

import argparse
import importlib
from typing import Any

from zoo import program
from zoo.cli import COMMANDS
from zoo.commands import keys, train
from zoo.config import loader

EPILOG = """\
bash  %(prog)s bash > ~/.local/share/bash-completion/completions/zoo
zsh   %(prog)s zsh > _zoo, in a folder of $fpath
tcsh  %(prog)s tcsh > ~/.zoo.tcsh, and in ~/.tcshrc: source ~/.zoo.tcsh"""
WORDS = "compgen -W '{}' -- $1"  # of bash
FILES = " compgen -f -- $1;"


def main(argv: list[str]) -> int:
    shell = parser().parse_args(argv).shell
    import shtab  # of an extra

    kinds = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "FOLDER": shtab.DIRECTORY, "RUN": shtab.DIRECTORY}
    recipes = _choices("recipes", list(loader.shipped_recipes()), FILES)
    overrides = _choices("keys", sorted({f"{key.name}=" for key in keys.catalog(keys.owners())}))
    by_option = {"config": recipes, "override": overrides}
    commands = _all_commands()
    for action in (action for each in commands.values() for action in each._actions):
        if complete := by_option.get(action.dest) or kinds.get(str(action.metavar)):
            action.complete = complete  # type: ignore[attr-defined]
    print(shtab.complete(commands[""], shell))
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    return parser


def _all_commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command and group by its words; that of "" has all others below it."""
    made: dict[str, argparse.ArgumentParser] = {"": argparse.ArgumentParser("zoo")}
    made[""].add_argument("--version", action="version")
    for name, (module, text) in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        parents = [importlib.import_module(module).parser()]
        if name == "launch":  # passes on what is not its own
            parents.append(train.parser())
        if group not in made:
            made[group] = _below(made[""]).add_parser(group, help=f"commands: zoo {group} --help")
        options: dict[str, Any] = {"parents": parents, "add_help": False, "conflict_handler": "resolve"}
        made[name] = _below(made[group]).add_parser(word, help=text, **options)
    return made


def _below(parser: argparse.ArgumentParser) -> Any:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found[0] if found else parser.add_subparsers()


def _choices(name: str, words: list[str], more: str = "") -> dict[str, Any]:
    """Return how shells complete one of some words; bash also by what `more` prints."""
    listed = f"({' '.join(words)})"
    function = f"_zoo_{name}() {{ {WORDS.format(' '.join(words))};{more} }}"
    return {"bash": f"_zoo_{name}", "zsh": listed, "tcsh": listed, "preamble": {"bash": function}}
