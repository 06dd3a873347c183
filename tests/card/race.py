"""PyTorch's CUDA sanitizer watches updates whose batches another thread copies: python -m tests.card.race."""

import threading

import torch.cuda._sanitizer as sanitizer

from tests.card.update import assemble
from zoo.run import job

SYNTHETIC = {"data.name": "synthetic", "data.kind": "image", "data.num_classes": 8, "target": "null", "train.batch": 4}


def main():
    sanitizer.enable_cuda_sanitizer()
    pairs = [word for key, value in SYNTHETIC.items() for word in ("-o", f"{key}={value}")]
    made = assemble(["-c", "resnet50_demo", "--amp", *pairs])
    batches = []

    def prefetch():
        with sanitizer.CUDASanitizerDispatchMode() as mode:  # of this thread; the records are those of both
            mode.event_handler = sanitizer.cuda_sanitizer.dispatch.event_handler
            batches.extend(job.sample_batch(made) for _ in range(3))

    thread = threading.Thread(target=prefetch)
    thread.start()
    thread.join()
    for step, batch in enumerate(batches):
        made.trainer.read(made.trainer.step([batch], 0.1, step))


if __name__ == "__main__":
    main()
