"""Graphs in 16 bits."""

from collections.abc import Sequence
from typing import Any

from zoo.data.errors import UserError
from zoo.export import proof
from zoo.export.assembly import outside
from zoo.export.proof import Row

LIMIT = 1e-2  # of the relative difference; narrow models have 2e-3


def convert(model: Any) -> Any:
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
    """Raise UserError if a graph in fp16 differs by more than LIMIT."""
    difference = proof.largest(compared)
    if not difference <= LIMIT:
        raise UserError(
            f"the graph in fp16 differs by {difference:.1e}, more than {LIMIT:.0e}; nothing is written: take "
            "--precision fp32"
        )
