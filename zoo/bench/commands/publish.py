"""Write the records of a run, or of all runs of a matrix, to one file that anybody can verify."""

from pathlib import Path

from zoo import program
from zoo.bench import bundle
from zoo.commands.new_file import require_new
from zoo.data import durable

EPILOG = """\
A bundle has journal, recipe and AI-Rank log of each run, the results of a matrix, the SHA-256 of the weights, the
checksum of the data, and what was recorded of versions, code, host and protocol; neither weights nor data. The journal
has the command, paths and names of the hosts as they were: read it before you publish it.

examples
  %(prog)s runs/tsm_demo
  %(prog)s results/demo --out two-cores.zip
  zoo verify two-cores.zip
  zoo report *.zip

Exit codes: 0 written, 2 an error to fix on your side, such as records that contradict one another."""


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    out = arguments.out or f"{Path(arguments.folder).resolve().name}.zip"
    require_new(out, "--out")
    content = bundle.pack(arguments.folder, arguments.license)
    durable.write(out, content)
    print(f"wrote {out}, {len(content)} bytes")
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("folder", metavar="RUN|MATRIX", help="folder of a run, or above runs")
    parser.add_argument("--out", metavar="FILE", help="a new file; default <name of the folder>.zip")
    parser.add_argument("--license", default="CC-BY-4.0", metavar="NAME", help="of the results; default CC-BY-4.0")
    return parser
