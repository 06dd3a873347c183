"""Record of a forward pass in PyTorch; see zoo/trainer/recording.py."""

from typing import Any

import torch

from zoo.trainer.recording import ForwardRecord, Keep, Recorder, flatten
from zoo.trainer.torch.trainer import DeviceBatch, Trainer


@torch.no_grad()
def record_forward(trainer: Trainer, batch: DeviceBatch, training: bool, keep: Keep) -> ForwardRecord:
    """Run the model on a micro-batch and record every module.

    Args:
        trainer: its running statistics are unchanged afterwards.
        batch: a training batch on the device.
        training: in training mode with the batch's dropout masks, else in evaluation mode.
        keep: reduces a float64 array to what the record keeps of it.
    """
    modules: dict[str, Any] = dict(trainer.model.named_modules())
    recorder, hooks = Recorder(modules, keep), []
    for name, module in modules.items():
        hooks.append(
            module.register_forward_pre_hook(
                lambda module, args, kwargs, name=name: recorder.enter(name, module, _arrays((args, kwargs))),
                with_kwargs=True,
            )
        )
        hooks.append(module.register_forward_hook(lambda module, args, output: recorder.leave(_arrays(output))))
    before = trainer.state_dict()
    try:
        _forward(trainer, batch, training)
    finally:
        for hook in hooks:
            hook.remove()
    trainer.load_state_dict({param.name: before[param.name] for param in trainer.params if param.is_statistic})
    return ForwardRecord(recorder.calls, recorder.outputs)


def _forward(trainer: Trainer, batch: DeviceBatch, training: bool) -> None:
    if training:
        trainer.train_mode()
    else:
        trainer.model.eval()
    masks = [batch[name] for name in trainer.plan.dropout_masks] if training else []
    with trainer.autocast():
        trainer.model(trainer.preprocess(batch[trainer.input_name]), *masks)


def _arrays(values: Any) -> list:
    return [tensor.detach().double().cpu().contiguous().numpy().copy() for tensor in flatten(values)]
