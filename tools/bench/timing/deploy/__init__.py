"""The deploy part of tools/bench.py: exported models against PyTorch."""
