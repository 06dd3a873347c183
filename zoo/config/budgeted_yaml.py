"""Reading of YAML within a budget: a small text cannot ask for much memory, time or recursion."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from zoo.data.parsing import reason

MAX_DEPTH = 20  # of nested lists and mappings; recipes have five
MAX_TEXT = 1 << 18  # characters, which PyYAML reads one by one
MAX_NODES = 20_000  # keys, values, lists and mappings, with those that aliases stand for

UNUSABLE = re.compile("[\0\ud800-\udfff]")  # which escapes can write, but no file name or text file can hold


def safe_load(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: The text is not YAML, exceeds the budget, or has a scalar that no Python value can hold.
    """
    check(text)
    with _yaml_errors():
        return yaml.safe_load(text)


def compose(text: str) -> yaml.Node | None:
    """Return the node of a YAML text, None if it is empty. Raises yaml.YAMLError as safe_load does."""
    check(text)
    with _yaml_errors():
        return yaml.compose(text, yaml.SafeLoader)


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


def check(text: str) -> None:
    """Raise yaml.YAMLError for a text that is not YAML or exceeds the budget. Nothing is built and nothing recurses."""
    if len(text) > MAX_TEXT:
        raise yaml.YAMLError(f"more than {MAX_TEXT} characters")
    with _yaml_errors():
        _count(text)


def _count(text: str) -> None:
    nodes = 0
    starts: list[tuple[str | None, int]] = []  # anchor of each open list or mapping, and the nodes before it
    sizes: dict[str, int] = {}  # of the nodes with an anchor
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            nodes += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            sizes[event.anchor] = 1
            if UNUSABLE.search(event.value):
                raise yaml.YAMLError(f"line {event.start_mark.line + 1}: {event.value!r} is no text")
        elif isinstance(event, yaml.CollectionStartEvent):
            starts.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = starts.pop()
            sizes[anchor or ""] = nodes - before
        line = event.start_mark.line + 1
        if len(starts) > MAX_DEPTH:
            raise yaml.YAMLError(f"line {line}: more than {MAX_DEPTH} levels of nested lists and mappings")
        if nodes > MAX_NODES:
            raise yaml.YAMLError(f"line {line}: more than {MAX_NODES} values, with those of aliases")
