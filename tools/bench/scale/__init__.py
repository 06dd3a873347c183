"""Parts of tools/scale.py: calibration, closed form, simulation, and the check against published tables."""
