"""Images of an evaluation for the viewers of a run."""
