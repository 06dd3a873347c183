"""Updates of other projects' training loops in MindSpore, as in peers/torch.py."""

from collections.abc import Callable
from typing import Any

import mindspore

from zoo.bench.peers import upstream


def mindcv(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of mindcv: resnet50 and what its `create_trainer` makes of it, mindspore's Model, in graph mode.

    `Model.train` runs its training network on each batch; so does this loop. By mindcv's defaults it neither computes
    the norm of the gradient nor skips an update that is not finite; this trainer does both.
    """
    network = upstream.installed("mindcv.models").create_model("resnet50", num_classes=job.arch.num_classes)
    loss = upstream.installed("mindcv.loss").create_loss("CE", label_smoothing=0.1)
    optimizer = upstream.installed("mindcv.optim").create_optimizer(
        network.trainable_params(), opt="momentum", lr=1e-3, weight_decay=1e-4, momentum=0.9
    )
    model = upstream.installed("mindcv.utils").create_trainer(
        network, loss, optimizer, set(), "O0", None, "fixed", loss_scale=1.0, drop_overflow_update=False
    )
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    train_network = model._train_network
    train_network.set_train()
    images = mindspore.Tensor(job.trainer.preprocess(batch["image"]).asnumpy())
    labels = batch["label"].astype(mindspore.int32)

    def step() -> None:
        train_network(images, labels).asnumpy()

    return step
