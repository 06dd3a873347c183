import pytest

from tests.helpers.prepared import serial_prepare


@pytest.fixture
def serial(monkeypatch):
    return serial_prepare(monkeypatch)
