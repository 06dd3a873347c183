"""tools/compare.py on the CPU and on a device, the second against the first."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.bench.matrix.cases import CHECKOUT
from zoo.bench.matrix.folder import write
from zoo.compare import curves
from zoo.data.errors import UserError

COMPARE = CHECKOUT / "tools" / "compare.py"
AGREE, DIFFER = 0, 1  # exit codes of tools/compare.py


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what it does not know are options of tools/compare.py. Return 1 if the results differ."""
    parser = argparse.ArgumentParser(prog="zoo.bench.gpu_checks.compare_devices", description=__doc__)
    add = parser.add_argument
    add("--device", metavar="NAME", required=True, help="compared with the CPU")
    add("--frameworks", metavar="A,B", required=True, help="frameworks to compare")
    add("--folder", metavar="DIR", required=True, help="receives both results; must not exist")
    add("--json", metavar="FILE", required=True, help="receives what was found")
    arguments, options = parser.parse_known_args(argv)
    folder, frameworks = Path(arguments.folder), arguments.frameworks.split(",")
    try:
        found = compare(folder, frameworks, arguments.device, options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(Path(arguments.json), json.dumps(found, indent=1))
    return 0 if found["agree"] else 1


def compare(folder: Path, frameworks: Sequence[str], device: str, options: Sequence[str]) -> dict[str, Any]:
    """Compare; return whether the results agree, and the largest relative difference of a loss from the first.

    Raises:
        UserError: a framework failed.
    """
    command = [sys.executable, str(COMPARE), *options, "--frameworks", ",".join(frameworks)]
    cpu, other = folder / "cpu", folder / "device"
    folder.mkdir(parents=True, exist_ok=True)
    codes = [
        subprocess.run([*command, "--device", on, "--out", str(out), *against], check=False).returncode
        for on, out, against in (("cpu", cpu, []), (device, other, ["--against", str(cpu)]))
    ]
    if not set(codes) <= {AGREE, DIFFER}:
        raise UserError("a comparison failed; the lines above tell why")
    rows = [curves.load(str(out / f"{name}.jsonl"))[1] for out in (cpu, other) for name in frameworks]
    apart = [curves.relative_difference([row.loss for row in step]) for step in zip(*rows)]
    return {"agree": codes[1] == AGREE, "steps": len(apart), "largest_difference": max(apart, default=None)}


if __name__ == "__main__":
    sys.exit(main())
