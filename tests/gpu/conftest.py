"""The device that the tests of this folder run on: a GPU, or with --device another one, to try the tests themselves."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--device", default="cuda", help="of the tests in tests/gpu; default cuda")


@pytest.fixture(scope="session")
def device(request):
    return request.config.getoption("--device", "cuda")
