"""Paths of lists that lead out of the data set's folder."""

import pytest

from zoo.data.errors import UserError
from zoo.data.formats import confined


@pytest.mark.parametrize("name", ["/etc/passwd", "../b.jpg", "a/../../b.jpg", "..", "a/.."])
def test_paths_that_lead_elsewhere(name):
    with pytest.raises(
        UserError, match=f"^train.list: {name} may lead out of data.root; .*data.allow_outside_root=true"
    ):
        confined.check("train.list", ["a.jpg", name], False)
    confined.check("train.list", ["a.jpg", name], True)


def test_paths_that_only_look_so():
    confined.check("train.list", ["a/b.jpg", "a..b/c...jpg", "..a/b", "a\\..\\b", ""], False)
