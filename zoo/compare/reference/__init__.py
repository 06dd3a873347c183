"""What all frameworks share, written a second time in numpy and float64, from its definition.

It shares no code with zoo/losses, zoo/optim, zoo/tasks, zoo/trainer and zoo/run: a slip there is in every framework
alike, and shows only beside these. Tests compare with the same files.
"""
