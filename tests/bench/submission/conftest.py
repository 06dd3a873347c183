"""A submission of three scales."""

import shutil

import pytest

from tests.bench.submission.scales import GIVEN, write_scales
from zoo.bench.submission import runs, tree


@pytest.fixture(scope="session")
def good_tree(tmp_path_factory):
    """A tree that every check accepts; not to be changed."""
    folder = tmp_path_factory.mktemp("submission")
    scales = {cards: runs.read(path) for cards, path in write_scales(folder).items()}
    plan = tree.plan(scales, GIVEN, None)
    assert plan.missing == []
    tree.write(str(folder / "tree"), plan.files)
    return folder / "tree"


@pytest.fixture
def copied_tree(good_tree, tmp_path):
    """A copy of the tree, to be changed."""
    return shutil.copytree(good_tree, tmp_path / "tree")
