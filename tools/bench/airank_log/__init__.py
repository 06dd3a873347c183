"""AI-Rank training logs of any project: their grammar, values and deviations from the rules."""
