"""The section `upstream` of a recipe."""

import pytest

from tests.zoo.config.recipe_files import SMALL, build, message_of, write
from zoo.config import loader
from zoo.config.schema import Upstream
from zoo.run import cli
from zoo.run.cli import FIND

UPSTREAM = f"upstream:\n  repository: https://github.com/a/b\n  commit: {'0f' * 20}\n  files: [x.py]\n"


def test_an_upstream_is_inherited_recorded_and_taken_away_by_null(tmp_path):
    write(tmp_path, SMALL + UPSTREAM, "base.yaml")
    config, resolved = build(tmp_path, "base: base.yaml\n")
    assert config.upstream == Upstream("https://github.com/a/b", "0f" * 20, ("x.py",))
    again, _ = loader.build(loader.read(write(tmp_path, loader.render(resolved), "again.yaml")), FIND)
    assert again == config
    config, resolved = build(tmp_path, "base: base.yaml\nupstream: null\n")
    assert config.upstream is None and resolved["upstream"] == loader.Entry(None, f"{tmp_path / 'r.yaml'}:2")
    write(tmp_path, SMALL + "upstream: null\n", "none.yaml")
    assert build(tmp_path, "base: none.yaml\n" + UPSTREAM)[0].upstream == Upstream(
        "https://github.com/a/b", "0f" * 20, ("x.py",)
    )
    request = cli.request(write(tmp_path, SMALL + UPSTREAM), ["upstream=null"])
    assert request.config.upstream is None and request.resolved["upstream"] == loader.Entry(None, "-o upstream")


@pytest.mark.parametrize(
    "change, expected",
    [
        ("upstream.commit=0f0f", "upstream.commit: expected all 40 hexadecimal digits of a commit, got '0f0f'"),
        ("upstream.repository=a/b", "upstream.repository: expected an https address, got 'a/b'"),
        ("upstream.files=[]", "upstream.files: expected at least one path, relative to the root of the repository"),
        ("upstream.files=[/x.py]", "upstream.files: expected at least one path, relative to the root"),
        ("upstream.file=[x.py]", "upstream.file: unknown key; did you mean upstream.files?"),
        ("upstream=yes", "upstream: expected the keys of a section or null, got True"),
    ],
)
def test_an_upstream_that_is_not_one(tmp_path, change, expected):
    text = SMALL if change.startswith("upstream=") else SMALL + UPSTREAM
    assert expected in message_of(build, tmp_path, text, change)


def test_an_upstream_needs_every_key(tmp_path):
    message = message_of(build, tmp_path, SMALL + UPSTREAM.replace("  files: [x.py]\n", ""))
    assert message == "upstream.files: the recipe must give this key"
