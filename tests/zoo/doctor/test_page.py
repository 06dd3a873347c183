"""The page: 100 columns wide, and complete."""

import json

import pytest

from zoo.data.errors import UserError
from zoo.doctor import page
from zoo.doctor.finding import Finding

SHORT = Finding("machine", "memory", "ok", "8.0 GB of 16 GB free")
LONG = Finding("machine", "shared memory", "warn", " ".join(["one"] * 30), "a-remedy-without-spaces " * 5)


def test_a_short_line():
    assert page.line(SHORT) == "  memory            ok   8.0 GB of 16 GB free"


def test_a_long_line_goes_on_below():
    lines = page.line(LONG).splitlines()
    assert len(lines) == 4 and all(len(line) <= 100 for line in lines)
    words = " ".join(lines).split()
    assert words == ["shared", "memory", "warn", *["one"] * 29, "one;", *["a-remedy-without-spaces"] * 5]
    assert {line[:25] for line in lines[1:]} == {" " * 25}


def test_a_heading_for_each_section(capsys):
    printer = page.Printer()
    printer.show([SHORT])
    printer.show([SHORT, SHORT._replace(section="torch", topic="cpu")])
    assert [line[:10] for line in capsys.readouterr().out.splitlines()] == [
        "machine",
        "  memory  ",
        "  memory  ",
        "torch",
        "  cpu     ",
    ]


def test_json(tmp_path):
    path = str(tmp_path / "a.json")
    page.write(path, [SHORT], {"can_train": True})
    with open(path) as file:
        assert json.load(file) == {"can_train": True, "findings": [SHORT._asdict()]}
    with pytest.raises(UserError, match="File exists; name another file"):
        page.write(path, [SHORT], {})
