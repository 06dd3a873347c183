"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""

import sys

from zoo.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
