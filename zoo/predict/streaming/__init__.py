"""Classification of a video while it runs: a file, a camera or an address, frame by frame, by a causal model."""
