"""One update of other projects' training loops, as functions that tools/bench/peers/steps.py times beside this trainer's.

Each module of a peer has NAME and `update(clones, job, batch)`, which returns a function that runs one update on the
batch of the job and waits for its loss. It imports the peer's model, and repeats the statements of its training loop;
its code is nowhere in this project.
"""
