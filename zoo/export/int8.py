"""Graphs in 8 bits, quantized statically; their metric must stay."""

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.export import assembly, metric, proof, samples
from zoo.export.reference import Reference
from zoo.export.samples import Splits


def quantize(reference: Reference, splits: Splits) -> Any:
    """Build and quantize the graph of a checkpoint; evaluate it before and after, and print the metric.

    The graph that is evaluated takes normalized pixels, also where the file will have preprocessing.

    Raises:
        UserError: the metric is lower than it may be.
    """
    source, shape = reference.source, reference.shape
    pixels = samples.for_calibration(source, splits.train)
    normalized = [np.ascontiguousarray(proof.normalize(source, batch)) for batch in pixels]
    plain = assembly.build(source, shape, False)
    quantized = convert(assembly.build(source, shape, False, folded=True), normalized)
    facts = dict(protocol="", precision="int8", opset=plain.opset_import[0].version, max_difference=0.0)
    print(metric.require_kept(source, plain, quantized, assembly.describe(source, shape, False, **facts), splits))
    if not reference.with_preprocessing:
        return quantized
    return convert(assembly.build(source, shape, True, folded=True), pixels)


def convert(model: Any, batches: Sequence[np.ndarray]) -> Any:
    """Return a graph with int8 weights and values, quantized statically.

    Weights have a symmetric range per channel. Values have one that holds all that occur for the batches. Operators
    stand between pairs of QuantizeLinear and DequantizeLinear, which are standard.

    Args:
        model: onnx.ModelProto in fp32, with folded normalizations.
        batches: inputs of the graph.
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
