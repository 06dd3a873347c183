"""Data sets by name."""

from types import ModuleType

import pytest

from zoo import data
from zoo.data.dataset import LoaderSettings
from zoo.data.errors import UserError


def test_every_data_set_has_settings_and_functions():
    for name in data.names():
        module = data.find(name)
        assert isinstance(module, ModuleType) and issubclass(module.Settings, LoaderSettings)
        assert callable(module.load) and callable(module.describe)


def test_an_unknown_name():
    with pytest.raises(UserError, match="no data set 'imagnet'; choose one of cityscapes, faces"):
        data.find("imagnet")
