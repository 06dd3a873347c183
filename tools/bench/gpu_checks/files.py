"""Random files of the size and kind of the real data sets, in the layouts that the recipes read."""

import argparse
import os
import sys

KINDS = ("images", "faces", "scenes", "clips")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="zoo.bench.gpu_checks.files", description=__doc__)
    parser.add_argument("folder", help="receives the files; what is there already stays")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"any of {', '.join(KINDS)}; default: all")
    arguments = parser.parse_args(argv)
    for kind in arguments.kinds or KINDS:
        if kind not in KINDS:
            parser.error(f"there is no kind {kind!r}")
        make(arguments.folder, kind)
    return 0


def make(folder: str, kind: str) -> None:
    """Make the files of a kind, clips also as prepared frames.

    Args:
        folder: receives a folder of the kind's name.
        kind: one of KINDS.
    """
    from zoo.bench.peers import sets  # needs OpenCV

    made = sets.complete(os.path.join(folder, kind), getattr(sets, kind))
    if kind == "clips":
        prepared = os.path.join(folder, "prepared-frames")
        if not os.path.exists(os.path.join(prepared, "manifest.safetensors")):
            sets.prepare(prepared, "k400", made, "--frames")


if __name__ == "__main__":
    sys.exit(main())
