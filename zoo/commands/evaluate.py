"""Evaluate a checkpoint, an exported model, or the last checkpoint of a run: zoo evaluate runs/x/checkpoints/best"""

from zoo.commands import train

parser = train.parser


def main(argv: list[str]) -> int:
    """Run `zoo train --eval-only` with the same options; a first word without a dash is what --weights names."""
    weights = ["--weights", *argv[:1]] if argv and not argv[0].startswith("-") else []
    return train.main(["--eval-only", *weights, *argv[len(weights) // 2 :]])
