"""Proof that any two programs compute the same, or the module where they part; `zoo parity` is its program."""
