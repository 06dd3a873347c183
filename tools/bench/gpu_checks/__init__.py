"""The steps of tools/gpu_check.py: what is run on a GPU, how its results are read, and the tables made of them."""
