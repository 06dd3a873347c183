"""Environment variables that a start carries to all processes: by prefix, and those that --env names."""

import os
import shlex
from collections.abc import Mapping, Sequence

from zoo.data.errors import UserError
from zoo.distributed.variables import HIDDEN, NAME, NAMED, OF_LAUNCHERS, carried, is_secret, withheld


def collect(named: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables for all processes, by name.

    Args:
        named: values of --env: NAME for the caller's value, or NAME=VALUE.
        environ: environment of the caller.

    Raises:
        UserError: A name is not one of a variable, belongs to launchers, or has no value.
    """
    chosen: dict[str, str] = {}
    for text in named:
        name, equals, value = text.partition("=")
        if not NAME.fullmatch(name):
            raise UserError(f"--env {text}: expected NAME or NAME=VALUE; a name has letters, digits and underscores")
        if name in OF_LAUNCHERS:
            raise UserError(f"--env {name}: launchers set this variable; use --hosts, --address and --port")
        if not equals and name not in environ:
            raise UserError(f"--env {name}: not set here; give its value, --env {name}=VALUE")
        chosen[name] = value if equals else environ[name]
    variables = {**carried(environ), **chosen}
    return {**variables, NAMED: ",".join(chosen)} if chosen else variables


def describe(variables: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return lines for --dry-run: the variables that are carried, and those that are not for their names."""
    lines = [
        f"env {name}={HIDDEN if is_secret(name, value) else shlex.quote(value)}" for name, value in variables.items()
    ]
    left = [name for name in withheld(environ) if name not in variables]
    return lines + [f"not carried unless named with --env: {', '.join(left)}"] * bool(left)


def check_printable(variables: Mapping[str, str]) -> None:
    """Raise UserError if a value that is about to be written to a file looks like a secret."""
    for name, value in variables.items():
        if is_secret(name, value):
            raise UserError(
                f"--env {name}: looks like a secret, which --print would write down; leave it out and let the cluster "
                "provide it (sbatch --export, a Kubernetes Secret)"
            )
