"""Imports from copies of other projects: what is missing is named."""

import pytest

from zoo.bench import upstream
from zoo.data.errors import UserError


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent: no such folder; docs/performance.md"):
        upstream.load(str(tmp_path / "absent"), "json")
    with pytest.raises(UserError, match=r"no_such_package: No module named 'no_such_package'; docs/performance.md"):
        upstream.installed("no_such_package")
    (tmp_path / "other_build.py").write_text("raise RuntimeError('operator other::nms does not exist')")
    with pytest.raises(UserError, match="other_build: operator other::nms does not exist; docs/performance.md"):
        upstream.load(str(tmp_path), "other_build")
