"""The command `zoo` as a file: python -m zoo, and what launchers start by its path in every process."""

import sys
from pathlib import Path

if not __package__:  # started by its path: the folder of the package is on the path in place of the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from zoo.cli import main

if __name__ == "__main__":
    sys.exit(main())
