"""The page docs/keys.md, written from the annotations of the settings classes: python -m tests.keys_page"""

from tests.helpers.paths import ROOT
from zoo.commands.keys import Key, catalog, owners
from zoo.table import table

PAGE = ROOT / "docs" / "keys.md"
HEAD = """\
# Keys of recipes

`zoo train --explain KEY` shows a key in a terminal, and with `-c RECIPE` its value. A default of `-` means that a
recipe must give the key. Where a key differs between models, data sets, losses or optimizers, the last column names
those that have it so; a loss stands behind its task. `python -m tests.keys_page` writes this page from the code.
"""
COLUMNS = ("key", "meaning", "values", "default", "with")


def row(key: Key) -> tuple[str, ...]:
    default = f"`{key.default or '-'}`" if key.default != "that of the task" else key.default
    return f"`{key.name}`", key.meaning.replace("<", "&lt;"), key.values, default, key.where


def page() -> str:
    """Return the text of the page."""
    keys = catalog(owners())
    sections = list(dict.fromkeys(owner.section for owner in owners()))
    parts = [HEAD]
    for section in sections:
        head = [key for key in keys if key.name == section]
        own = [key for key in keys if key.name.rpartition(".")[0] == section and key.name not in sections]
        lines = [f"## {section or 'top level'}", "", *(f"{key.meaning}\n" for key in head)]
        columns = COLUMNS if any(key.where for key in own) else COLUMNS[:-1]
        rows = [row(key)[: len(columns)] for key in own]
        parts.append("\n".join([*lines, *table(rows, columns, markdown=True)]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
