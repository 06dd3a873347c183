"""Record of a forward pass in MindSpore; see zoo/trainer/recording.py."""

from typing import Any

import mindspore
import numpy as np
from mindspore import dtype as mstype

from zoo.trainer.mindspore.trainer import DeviceBatch, Trainer
from zoo.trainer.recording import ForwardRecord, Keep, Recorder, flatten

INNER = "bn2d"  # a BatchNorm3d contains a BatchNorm2d, which the other frameworks do not have


def record_forward(trainer: Trainer, batch: DeviceBatch, training: bool, keep: Keep) -> ForwardRecord:
    """Run the model on a micro-batch and record every module, in pynative mode, since graphs call no hooks.

    Args:
        trainer: its running statistics are unchanged afterwards.
        batch: a training batch on the device.
        training: in training mode with the batch's dropout masks, else in evaluation mode.
        keep: reduces a float64 array to what the record keeps of it.
    """
    model = trainer.train_forward if training else trainer.model
    modules: dict[str, Any] = {name: cell for name, cell in model.cells_and_names() if name.rpartition(".")[2] != INNER}
    recorder, hooks = Recorder(modules, keep), []
    for name, module in modules.items():

        def enter(module, args, name=name):
            recorder.enter(name, module, _arrays(args))

        def leave(module, args, output):
            recorder.leave(_arrays(output))

        hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    before, mode = trainer.state_dict(), mindspore.get_context("mode")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    try:
        names = trainer.inputs if training else trainer.inputs[:1]
        image, *masks = (batch[name] for name in names)
        model(trainer.preprocess(image), *masks)
    finally:
        mindspore.set_context(mode=mode)
        for hook in hooks:
            hook.remove()
    trainer.load_state_dict({param.name: before[param.name] for param in trainer.params if param.is_statistic})
    return ForwardRecord(recorder.calls, recorder.outputs)


def _arrays(values: Any) -> list[np.ndarray]:
    return [np.array(tensor.astype(mstype.float64).asnumpy()) for tensor in flatten(values)]
