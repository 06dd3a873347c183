"""Reading of YAML within a budget: a small text cannot ask for much memory, time or recursion.

Aliases, which stand for much text in a few characters, are refused; so the length of a text limits its values.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from zoo.data.errors import reason

MAX_DEPTH = 20  # of nested lists and mappings; recipes have five
MAX_TEXT = 1 << 18  # characters, which PyYAML reads one by one

UNUSABLE = re.compile("[\0\ud800-\udfff]")  # which escapes can write, but no file name or text file can hold
OLD_NUMBER = re.compile(r"[-+]?(0[0-7_]+|[1-9][\d_]*(:[0-5]?\d)+|\d[\d_]*(:[0-5]?\d)+\.[\d_]*)")  # 010, 1:30


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader with these limits."""

    def __init__(self, text: str):
        if len(text) > MAX_TEXT:
            raise yaml.YAMLError(f"more than {MAX_TEXT} characters")
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node. Raises yaml.YAMLError if it is an alias, nested too deeply, or no text."""
        event = self.peek_event()
        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"{line}: the alias *{event.anchor}; write its value out")
        if self._depth == MAX_DEPTH and isinstance(event, yaml.CollectionStartEvent):
            raise yaml.YAMLError(f"{line}: more than {MAX_DEPTH} levels of nested lists and mappings")
        if isinstance(event, yaml.ScalarEvent) and UNUSABLE.search(event.value):
            raise yaml.YAMLError(f"{line}: {event.value!r} is no text")
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and OLD_NUMBER.fullmatch(event.value):
            raise yaml.YAMLError(
                f"{line}: {event.value[:20]} is an octal or sexagesimal number in YAML 1.1; write it in decimal, "
                "or text in quotes"
            )
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def safe_load(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: The text is not YAML, exceeds the budget, or has a scalar that no Python value can hold.
    """
    with _yaml_errors():
        return Loader(text).get_single_data()


def compose(text: str) -> yaml.Node | None:
    """Return the node of a YAML text, None if it is empty. Raises yaml.YAMLError as safe_load does."""
    with _yaml_errors():
        return Loader(text).get_single_node()


def construct(node: yaml.Node) -> Any:
    """Return the value of a node. Raises yaml.YAMLError as safe_load does."""
    with _yaml_errors():
        return yaml.SafeLoader("").construct_object(node, deep=True)


@contextmanager
def _yaml_errors() -> Iterator[None]:
    """Turn what PyYAML raises for scalars into a YAMLError: for an impossible date, say, or a !!timestamp of text."""
    try:
        yield
    except yaml.YAMLError:
        raise
    except Exception as error:
        raise yaml.YAMLError(reason(error)) from None
