"""Read every sample of a recipe's data once and list those that cannot be read, before a long run needs them."""

import argparse
import dataclasses
import sys

import data
from data.errors import UserError
from data.stream import find_bad
from zoo.run import cli


def cli_main() -> None:
    """Run as the command zoo-check-data."""
    sys.exit(main())


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0 all readable, 1 some are not, 2 there is no data to read."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Exit codes: 0 all samples can be read, 1 some cannot, 2 an error to fix on your side.",
    )
    cli.add_recipe_arguments(parser, ())
    arguments = parser.parse_args(argv)
    try:
        request = cli.request(arguments.config, arguments.override)
        # The files themselves are checked, not their copies.
        settings = dataclasses.replace(request.config.data, cache=None)
        splits = data.find(request.resolved["data.name"].value).load(settings)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    code = 0
    for title, split in zip(("training", "validation"), splits):
        unreadable, count = find_bad(split, float("inf"))
        print(f"{title}: {count} samples read, {len(unreadable)} unreadable ({len(unreadable) / count:.3%})")
        for sample in unreadable:
            print(f"  {sample.name}: {sample.reason}")
            code = 1
    return code


if __name__ == "__main__":
    cli_main()
