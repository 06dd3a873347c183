"""Graphs in 16 bits and in 8 bits, quantized statically; the metric of the latter must stay."""

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo import tasks
from zoo.data.errors import Finding
from zoo.data.stream import UnreadableSample, open_evaluation
from zoo.distributed.group import Group
from zoo.export import assembly, proof
from zoo.export.assembly import outside
from zoo.export.proof import Row
from zoo.export.reference import Reference
from zoo.export.samples import Splits, for_calibration
from zoo.run import exported
from zoo.run.evaluation import evaluate
from zoo.run.trained import Trained
from zoo.trainer.pixels import normalize
from zoo.trainer.world import Launch
from zoo.weights.onnx_file import OnnxMetadata

FP16_LIMIT = 1e-2  # of the relative difference; narrow models have 2e-3
MAX_LOSS = 0.01  # of the metric, by int8


def to_fp16(model: Any) -> Any:
    """Return a graph whose weights and values are fp16; its input and output stay as they are.

    Args:
        model: onnx.ModelProto in fp32.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    converted = OnnxModel(convert_float_to_float16(model, keep_io_types=True, node_block_list=outside(model)))
    converted.topological_sort()  # the converter leaves its casts at the end
    return converted.model


def require_close(compared: Sequence[Row]) -> None:
    """Raise UserError if a graph in fp16 differs by more than FP16_LIMIT."""
    difference = proof.largest(compared)
    if not difference <= FP16_LIMIT:
        raise Finding(
            f"the graph in fp16 differs by {difference:.1e}, more than {FP16_LIMIT:.0e}; nothing is written: take "
            "--precision fp32"
        )


def require_kept(source: Trained, plain: Any, quantized: Any, metadata: OnnxMetadata, splits: Splits) -> str:
    """Evaluate a graph before and after its quantization, and compare.

    Args:
        plain, quantized: onnx.ModelProto of both, without preprocessing.

    Returns:
        A line with both metrics.

    Raises:
        Finding: the metric is more than MAX_LOSS lower afterwards.
    """
    name = tasks.load_task(source.cfg.task.task).PRIMARY
    before, after = (measure(source, model, metadata, splits) for model in (plain, quantized))
    line = f"{name} over {len(splits.val)} samples of the validation split: {before:.4f} in fp32, {after:.4f} in int8"
    if not after >= before - MAX_LOSS:
        raise Finding(
            f"{line}; int8 loses {before - after:.4f}, more than {MAX_LOSS}, so nothing is written: take --precision "
            "fp16 or fp32"
        )
    return line


def measure(source: Trained, model: Any, metadata: OnnxMetadata, splits: Splits) -> float:
    """Return the main metric of a graph, as train.py --eval-only computes it for the file."""
    cfg, task = source.cfg, tasks.load_task(source.cfg.task.task)
    whole = type(model)()
    whole.CopyFrom(model)
    assembly.attach(whole, metadata)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.onnx")
        with open(path, "wb") as file:
            file.write(whole.SerializeToString())
        world = exported.start(Launch(), "cpu")
        _, inference, _ = exported.build(path, cfg, source.model, source.arch, source.fields, world)
    stream = open_evaluation(splits.val, cfg.seed, cfg.train.eval_batch)
    metrics = evaluate(inference, stream, splits.val, task.Metric(splits.val, cfg.task), Group(Launch()), _ignore)
    return float(metrics[task.PRIMARY])


def _ignore(sample: UnreadableSample) -> None:
    """Do nothing: both graphs see the same samples, and data.eval_bad decides whether one may be unreadable."""


def quantize(reference: Reference, splits: Splits) -> Any:
    """Build and quantize the graph of a checkpoint; evaluate it before and after, and print the metric.

    The graph that is evaluated takes normalized pixels, also where the file will have preprocessing.
    """
    source, shape = reference.source, reference.shape
    pixels = for_calibration(source, splits.train)
    normalized = [normalize(batch, source.fields[0]) for batch in pixels]
    plain = assembly.build(source, shape, False)
    quantized = to_int8(assembly.build(source, shape, False, folded=True), normalized)
    facts = dict(protocol="", precision="int8", opset=plain.opset_import[0].version, max_difference=0.0)
    print(require_kept(source, plain, quantized, assembly.describe(source, shape, False, **facts), splits))
    if not reference.with_preprocessing:
        return quantized
    return to_int8(assembly.build(source, shape, True, folded=True), pixels)


def to_int8(model: Any, batches: Sequence[np.ndarray]) -> Any:
    """Return a graph with int8 weights and values, quantized statically.

    Weights have a symmetric range per channel. Values have one that holds all that occur for the batches. Operators
    stand between pairs of QuantizeLinear and DequantizeLinear, which are standard.

    Args:
        model: onnx.ModelProto in fp32, with folded normalizations.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches: Iterator[np.ndarray] = iter(batches)

        def get_next(self) -> dict[str, np.ndarray] | None:
            batch = next(self.batches, None)
            return None if batch is None else {model.graph.input[0].name: batch}

    logging.disable(logging.WARNING)  # it recommends a fusion that has been done
    try:
        with tempfile.TemporaryDirectory() as folder:
            # Files, because ONNX Runtime 1.20 takes the tensors out of a model that it is given.
            before, after = (os.path.join(folder, name) for name in ("fp32.onnx", "int8.onnx"))
            onnx.save(model, before)
            quantize_static(
                before,
                after,
                Reader(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=assembly.outside(model),
                extra_options={"WeightSymmetric": True},
            )
            return onnx.load(after)
    finally:
        logging.disable(logging.NOTSET)
