"""Parts of the campaign against readers of files (tests/campaign/fuzz.py): seeds, mutations, measures, the child."""
