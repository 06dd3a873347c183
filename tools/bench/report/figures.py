"""Figures of a report, drawn by matplotlib: as SVG for the page and as PNG."""

import importlib.util
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.bench.report.run import Case
from zoo.data.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colors that differ for color-blind readers too (Okabe and Ito, Paul Tol), visible on white and on black.
COLORS = ("#0077bb", "#ee7733", "#009e73", "#cc3377", "#a58500", "#33bbee", "#8c6bb1", "#888888")
DASHES = ("-", "--", "-.", ":")
INK = "#123456"  # of texts and axes; replaced by the text color of the page
WIDTH, ROW = 9.0, 0.32  # inches: of a figure, and of a row or a line of a legend
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",  # the same letters everywhere, so that nothing can overlap elsewhere
    "svg.hashsalt": "report",
    "font.size": 10,
    "text.parse_math": False,  # a name may contain dollars
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


class Plot(NamedTuple):
    """A figure.

    Attributes:
        name: of its file, without a suffix: <model>-<kind>.
        title: its heading.
        note: what it shows.
        figure: of matplotlib.
    """

    name: str
    title: str
    note: str
    figure: "Figure"

    def svg(self) -> str:
        """Return the figure as an SVG element that takes the text color of the page."""
        import matplotlib

        file = io.StringIO()
        with matplotlib.rc_context(SETTINGS):
            self.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = file.getvalue()
        text = text[text.index("<svg") :].replace(INK, "currentColor")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = text.replace("<svg ", f'<svg role="img" aria-label="{self.title}" ', 1)
        # Unique in the page: other figures have the same ids.
        return re.sub(r'(\bid="|url\(#|href="#)', rf"\1{self.name}-", text)

    def png(self, path: str) -> None:
        """Write the figure to a PNG file, on white."""
        import matplotlib

        with matplotlib.rc_context(SETTINGS):
            heading = self.figure.suptitle(f"{self.title}: {self.name.rpartition('-')[0]}", color=INK)
            self.figure.savefig(path, format="png", dpi=120, facecolor="white")
        heading.set_text("")  # the page has one of its own
        heading.set_in_layout(False)


def require() -> None:
    """Raise UserError if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("plots need matplotlib: pip install '.[plot]', or leave out --html and --png")


def create(height: float, columns: int = 1, share_y: bool = False) -> tuple["Figure", list["Axes"]]:
    """Return a figure of a height in inches, and its axes side by side, with a grid."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = list(figure.subplots(1, columns, squeeze=False, sharey=share_y)[0])
        for one in axes:
            one.set_facecolor("none")
            one.grid(True, color="#808080", alpha=0.3, linewidth=0.6)
            one.set_axisbelow(True)
            one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def add_legend(figure: "Figure") -> None:
    """Add the legend of all axes below them."""
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def shorten_thousands(axes: "Axes") -> None:
    """Print the numbers of the horizontal axis as 10k, 2M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def styles(cases: Sequence[Case]) -> dict[Case, tuple[str, str]]:
    """Return color and dashes of each case."""
    unique = list(dict.fromkeys(cases))
    return {case: (COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]) for i, case in enumerate(unique)}


def set_logarithmic(axes: "Axes") -> None:
    """Make the horizontal axis logarithmic, with plain numbers: powers would be mathematical text."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
