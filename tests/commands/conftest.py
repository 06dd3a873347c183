"""Fixtures of the tools' tests."""

import pytest

from tests.helpers.predicting import forbid_datasets


@pytest.fixture
def no_datasets(monkeypatch):
    """No data set can be loaded: predictions must not need the one that a model was trained on."""
    forbid_datasets(monkeypatch)
