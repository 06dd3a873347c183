"""Packages to install; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["zoo*", "data*", "tools*"]), "zoo.configs"],
    py_modules=["train"],
    package_dir={"zoo.configs": "configs"},  # so that `zoo-train -c tsm_demo.yaml` works from any folder
    package_data={"zoo.configs": ["*.yaml", "reports/*.yaml"], "zoo.tools.submission": ["mlperf_rules/*.yaml"]},
)
