"""The shortest training loop of each framework that does the same update as the zoo's trainer: what bench.py compares
with. Each module offers loop(job, device_batch) -> a function that does one update and waits for its loss."""
