"""train.py whose process group is Gloo, for two processes on one GPU, which NCCL 2.28 refuses."""

import os
import sys

import torch.distributed as dist

from zoo import cli

start = dist.init_process_group
dist.init_process_group = lambda backend, **words: start("gloo", **words)
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a machine without a network may not know its own name
sys.exit(cli.main(["train", *sys.argv[1:]]))
