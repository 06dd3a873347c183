"""Pages and texts from Jinja's templates."""

from pathlib import Path
from typing import Any

from zoo.data import extras


def render(path: Path, **values: Any) -> str:
    """Fill in a template; values in HTML are escaped.

    Args:
        values: that it uses; one that is missing is an error of the template.
    """
    extras.require("jinja2")
    import jinja2

    environment = jinja2.Environment(
        autoescape=path.suffix == ".html", trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(path.read_text(encoding="utf-8")).render(values)
