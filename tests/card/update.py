"""Count what an update in steady state asks of the device: python -m tests.card.update RECIPE_OPTIONS.

A child process of the tests and a tool of its own: -c and -o are those of train.py. Prints one line of JSON.
"""

import argparse
import collections
import ctypes
import json
import os
import subprocess
import time

import torch
import torch.distributed as dist

from zoo.commands.options import add_recipe_arguments, request_of
from zoo.distributed.group import Group
from zoo.run import job
from zoo.run.resume import restore
from zoo.trainer.world import Launch

WARM = 12  # updates before: allocations, choice of algorithms; DDP times its first ten, and waits
card = ctypes.CDLL("libcuda.so.1")
VISIT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_long, ctypes.c_long)
MIB = 2**20


class Alone(Group):
    """Group of many ranks of which only this one exists; the others have what it has."""

    def all_gather(self, value):
        return [value] * self.size


def assemble(words, ranks=1):
    """Return the job of a recipe on one of several ranks, with its first weights."""
    parser = argparse.ArgumentParser()
    add_recipe_arguments(parser)
    request = request_of(parser.parse_args([*words, "--framework", "torch", "--device", "cuda"]))
    group = Alone(Launch(size=ranks), {}, None)
    if ranks > 1:
        dist.TCPStore = lambda *_, **__: dist.HashStore()  # which waits for nobody
    made = job.assemble(request, group)
    restore(request.config, made, None, lambda *_: None)
    return made


def read_counters():
    """Return counts and bytes of everything since the last call, by kind and name."""
    found = collections.defaultdict(dict)

    def visit(text, count, size):
        kind, _, name = text.decode().partition(" ")
        found[kind][name] = (count, size)

    card.card_read(VISIT(visit))
    return found


def counts(counters):
    return {name: count for name, (count, _) in counters.items()}


def total(counters):
    return sum(count for count, _ in counters.values())


def measure(made, updates=1, may_wait=False):
    """Run updates in steady state, in which PyTorch raises an error where the host would wait.

    Returns:
        The counters of a batch's way to the device and of the last update, and the seconds of the fastest on the host.
    """
    read_counters()
    seconds = []
    batches = [job.sample_batch(made)] * made.plan.accumulate
    input_counters = read_counters()
    for step in range(WARM + updates):
        torch.cuda.set_sync_debug_mode("error" if step >= WARM and not may_wait else "default")
        torch.cuda.reset_peak_memory_stats()
        read_counters()
        begin = time.perf_counter()
        made.trainer.step(batches, 0.1, step)
        seconds.append(time.perf_counter() - begin)
    return input_counters, read_counters(), min(seconds[WARM:])


def summary(input_counters, counters, seconds):
    return {
        "inputs": counts(input_counters["copy"]),
        "kernels": total(counters["kernel"]),
        "calls": total(counters["call"]),
        "waits": counts(counters["wait"]),
        "allocations": counts(counters["memory"]),
        "copies": counts(counters["copy"]),
        "memsets": total(counters["memset"]),
        "graphs": counts(counters["graph"]),
        "collectives": {name: [count, round(size / MIB, 3)] for name, (count, size) in counters["nccl"].items()},
        "overlap": sum(calls for _, calls in counters["between"].values()),  # calls between large collectives
        "peak_mib": round(torch.cuda.max_memory_allocated() / MIB),
        "reserved_mib": round(torch.cuda.memory_reserved() / MIB),
        "host_ms": round(1000 * seconds),
    }


def print_names(counters, number):
    """Print the kernels and calls that an update begins most."""
    counts = {**counters["kernel"], **counters["call"]}
    words = subprocess.run(["c++filt"], input="\n".join(counts), capture_output=True, text=True, check=True)
    ordered = sorted(zip(counts.values(), words.stdout.splitlines()), reverse=True)
    for (count, _), name in ordered[:number]:
        print(f"{count:6} {name[:400]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--names", type=int, default=0, help="of kernels to print, those first that begin most")
    parser.add_argument("--updates", type=int, default=1, help="of which the fastest is timed")
    parser.add_argument("--may-wait", action="store_true", help="no error where the host waits")
    options, words = parser.parse_known_args()
    inputs, counters, seconds = measure(assemble(words, options.ranks), options.updates, options.may_wait)
    print_names(counters, options.names)
    print(json.dumps(summary(inputs, counters, seconds)), flush=True)
    os._exit(0)  # threads of a process group without others
