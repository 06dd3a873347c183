"""Paths of the checkout that tests use."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
GOLDEN = ROOT / "tests" / "golden"
