"""Hosts from the command line and from files of several launchers."""

import pytest

from tests.helpers.files import write_list
from zoo.data.errors import UserError
from zoo.launch.hosts import read


@pytest.mark.parametrize(
    "names, expected",
    [
        (None, ["localhost"]),
        ("n1", ["n1"]),
        ("n1, n2.example.org", ["n1", "n2.example.org"]),
        ("n1:8,n2:8", ["n1", "n2"]),
        ("10.0.0.1,fe80::1%eth0,::1", ["10.0.0.1", "fe80::1%eth0", "::1"]),
    ],
)
def test_hosts_of_the_command_line(names, expected):
    assert read(names, None, len(expected), 8) == expected


@pytest.mark.parametrize(
    "text",
    [
        "n1\nn2\n",
        "# two hosts\n\nn1 slots=8  # the first\nn2 slots=16 max_slots=16\n",
        "n1 slots = 8\nn2 max-slots=8 slots=8",
        "n1:8\nn2:9\n",
        "n1\n" * 8 + "n2\n" * 8,  # a batch system: one line per slot
        "n1:4\nn2:8\nn1:4\n",
    ],
)
def test_hosts_of_a_file(tmp_path, text):
    assert read(None, write_list(tmp_path, text), 2, 8) == ["n1", "n2"]


@pytest.mark.parametrize(
    "text, error",
    [
        ("n1\nn2 slot=8\n", "hosts, line 2: cannot read 'n2 slot=8'; write `n2`, `n2 slots=8` or `n2:8`"),
        ("n1 slots=0\nn2", "line 1: cannot read"),
        ("n1:0\nn2", "line 1: cannot read"),
        ("n1:x\nn2", "line 1: cannot read"),
        ("n1:8 slots=8\nn2", "line 1: cannot read"),
        ("me@n1\nn2", "line 1: 'me@n1' is not the name or address of a host"),
        ("n1\n-oProxyCommand=x\n", "line 2: '-oProxyCommand=x' is not the name"),
        ("n1 slots=8\nn2 slots=4\n", "n2 has 4 slots, but 2x8 needs 8"),
        ("n1\nn1\n", "2x8 needs 2 hosts, but there are 1: n1"),
        ("n1\nn2\nn3\n", "2x8 needs 2 hosts, but there are 3: n1, n2, n3"),
        ("# nothing\n\n", "no host in it"),
        (b"\xff\xfe", "--hostfile"),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, error):
    with pytest.raises(UserError) as caught:
        read(None, write_list(tmp_path, text, "hosts"), 2, 8)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    "names, file, error",
    [
        ("n1,n1", None, "--hosts: n1 is named twice"),
        ("n1,", None, "--hosts: '' is not the name"),
        ("n1:4,n2:8", None, "--hosts: n1 has 4 slots, but 2x8 needs 8"),
        ("n1,n2", "hosts", "give one of them"),
        (None, "nowhere", "--hostfile nowhere: No such file"),
    ],
)
def test_mistakes_on_the_command_line(names, file, error):
    with pytest.raises(UserError, match=error):
        read(names, file, 2, 8)
