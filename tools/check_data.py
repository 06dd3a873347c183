"""Read every sample of a recipe's data once and name those that cannot be read: before a long run, not during it."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import data
from data.errors import UserError
from data.stream import find_bad
from zoo.run import cli


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: all readable, 1: some are not, 2: no data to read."""
    parser = argparse.ArgumentParser(prog="check_data.py", description=__doc__)
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="recipe whose data section is read")
    parser.add_argument(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="as for train.py, such as -o data.root=/data/k400",
    )
    arguments = parser.parse_args(argv)
    recipe = ["-c", arguments.config] + [word for pair in arguments.override for word in ("-o", pair)]
    try:
        request = cli.read(cli.parse(recipe))
        splits = data.find(request.resolved["data.name"].value).load(request.config.data)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    code = 0
    for title, split in zip(("training", "validation"), splits):
        bad, tried = find_bad(split, float("inf"))
        print(f"{title}: {tried} samples read, {len(bad)} unreadable ({len(bad) / tried:.3%})")
        for sample in bad:
            print(f"  {sample.name}: {sample.reason}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
