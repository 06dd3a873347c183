"""Parts of tools/bench.py."""
