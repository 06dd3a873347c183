"""Numbers of hosts and cards on the command line."""

import pytest

from zoo.bench.scale.cluster import Cluster, doublings, parse, parse_all
from zoo.data.errors import UserError


def test_hosts_and_cards_are_read():
    assert parse_all("1,8, 4x8,128X8", "--worlds") == [Cluster(1, 1), Cluster(1, 8), Cluster(4, 8), Cluster(128, 8)]
    assert parse("4x8", "").size == 32 and str(Cluster(4, 8)) == "4x8"


@pytest.mark.parametrize("text", ["", "0", "4x0", "-1", "4x8x2", "1e3", "x8", "8x", "1.5", "²", "99999", "1000x1000"])
def test_anything_else_is_refused(text):
    with pytest.raises(UserError, match="--worlds"):
        parse(text, "--worlds")


def test_doublings():
    assert [doublings(1, 8), doublings(2, 4), doublings(8, 1)] == [3.0, 1.0, 0.0]
