"""train.py with DALI's decoding as on a GPU, in the training process, by its operators for a CPU."""

import sys

from zoo import cli
from zoo.data.loaders.dali_graph import DeviceDecoder
from zoo.run import pipeline

DECODED = "arrays decoded in the training process: "  # how many: the last line

if __name__ == "__main__":
    decoded = 0
    decode = DeviceDecoder.decode

    def count(self, batch):
        global decoded
        arrays, images = decode(self, batch)
        decoded += len(images)
        return arrays, images

    DeviceDecoder.decode = count
    pipeline.uses_gpu = lambda job: True
    code = cli.main(["train", *sys.argv[1:]])
    print(f"{DECODED}{decoded}")
    sys.exit(code)
