"""train.py with DALI in a worker process, then with its decoding in the training process, as on a GPU.

That is done by DALI's operators for a CPU. python -m tests.zoo.run.device_training FOLDER ARGUMENTS...
"""

import sys
from pathlib import Path
from unittest import mock

from zoo import cli
from zoo.data.loaders.dali_graph import DeviceDecoder
from zoo.run import pipeline


def decode_here(*arguments: str) -> int:
    """Train with the decoding in this process; return how many arrays it has decoded."""
    decoded, decode = 0, DeviceDecoder.decode

    def count(self, batch):
        nonlocal decoded
        arrays, images = decode(self, batch)
        decoded += len(images)
        return arrays, images

    uses_gpu = mock.patch.object(pipeline, "uses_gpu", lambda train_set, world: True)
    with mock.patch.object(DeviceDecoder, "decode", count), uses_gpu:
        assert cli.main(["train", *arguments]) == 0
    return decoded


def train_both_ways(folder: Path, arguments: list[str]) -> None:
    """Write the runs <folder>/worker and <folder>/here."""
    assert cli.main(["train", *arguments, "--out", str(folder / "worker")]) == 0
    assert decode_here(*arguments, "--out", str(folder / "here")) > 4  # those of training and evaluation


if __name__ == "__main__":
    train_both_ways(Path(sys.argv[1]), sys.argv[2:])
