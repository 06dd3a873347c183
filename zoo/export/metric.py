"""The metric of a graph over the recipe's validation split."""

import os
import tempfile
from typing import Any

from zoo import tasks
from zoo.data.errors import UserError
from zoo.data.stream import UnreadableSample, open_evaluation
from zoo.distributed import rendezvous
from zoo.export import assembly
from zoo.export.samples import Splits
from zoo.export.source import Source
from zoo.run import exported
from zoo.run.evaluate import evaluate
from zoo.trainer import load_onnx_backend
from zoo.trainer.world import Launch
from zoo.weights.onnx_metadata import OnnxMetadata

MAX_LOSS = 0.01  # of the metric, by int8


def require_kept(source: Source, plain: Any, quantized: Any, metadata: OnnxMetadata, splits: Splits) -> str:
    """Evaluate a graph before and after its quantization, and compare.

    Args:
        source: the checkpoint.
        plain, quantized: onnx.ModelProto of both, without preprocessing.
        metadata: of such a graph.
        splits: the recipe's data.

    Returns:
        A line with both metrics.

    Raises:
        UserError: the metric is more than MAX_LOSS lower afterwards.
    """
    name = tasks.load_task(source.spec.TASK).PRIMARY
    before, after = (measure(source, model, metadata, splits) for model in (plain, quantized))
    line = f"{name} over {len(splits.val)} samples of the validation split: {before:.4f} in fp32, {after:.4f} in int8"
    if not after >= before - MAX_LOSS:
        raise UserError(
            f"{line}; int8 loses {before - after:.4f}, more than {MAX_LOSS}, so nothing is written: take --precision "
            "fp16 or fp32"
        )
    return line


def measure(source: Source, model: Any, metadata: OnnxMetadata, splits: Splits) -> float:
    """Return the main metric of a graph, as train.py --eval-only computes it for the file."""
    cfg, task = source.cfg, tasks.load_task(source.spec.TASK)
    whole = type(model)()
    whole.CopyFrom(model)
    assembly.attach(whole, metadata)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.onnx")
        with open(path, "wb") as file:
            file.write(whole.SerializeToString())
        world = load_onnx_backend().start(Launch(), "cpu")
        _, inference, _ = exported.build(path, cfg, source.model, source.arch, source.fields, world)
    stream = open_evaluation(splits.val, cfg.seed, cfg.train.eval_batch)
    group = rendezvous.connect(Launch(), cfg.train.straggler_timeout)
    metrics = evaluate(inference, stream, splits.val, task.Metric(splits.val, cfg.task), group, _ignore)
    return float(metrics[task.PRIMARY])


def _ignore(sample: UnreadableSample) -> None:
    """Do nothing: both graphs see the same samples, and data.eval_bad decides whether one may be unreadable."""
