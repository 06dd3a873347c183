"""Submissions to AI-Rank's software track, training: files that a run is turned into, and checks of anybody's."""
