"""Data sets are found by their place in data/datasets and data/demo."""

import importlib

import pytest

from zoo import data
from zoo.data.errors import UserError


def test_all_data_sets_are_found_by_name():
    assert data.names() == sorted(
        ["cityscapes", "faces", "imagenet", "kinetics", "motion", "portraits", "shapes", "streets", "synthetic"]
    )
    for name in data.names():
        module = data.find(name)
        assert module.__name__ in (f"zoo.data.datasets.{name}", f"zoo.data.demo.{name}")
        assert all(callable(getattr(module, attribute)) for attribute in ("Settings", "load", "describe"))


def test_a_new_module_in_the_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "mine.py").write_text("")
    (tmp_path / "datasets" / "common").mkdir()
    monkeypatch.setattr(data, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib, "import_module", lambda name: name)
    assert data.names() == ["mine"] and data.find("mine") == "zoo.data.datasets.mine"


@pytest.mark.parametrize("name", ["kinetic", "common", "__init__", "../errors", ""])
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(UserError, match=f"no data set {name!r}; choose one of cityscapes, faces, imagenet"):
        data.find(name)
