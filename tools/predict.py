"""The program `zoo predict`, for a checkout that is not installed."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from zoo.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["predict", *sys.argv[1:]]))
