"""The operations of zoo/trainer/<framework>/ops.py against those in numpy, in fp32 and fp64 (test_trainer.py)."""

import importlib
import inspect

import numpy as np

from zoo.trainer import numpy_ops

ROWS, COLUMNS, CLASSES = 4, 6, 5
LIMITS = {np.float32: 1e-5, np.float64: 1e-15}  # errors, relative to the largest element; MindSpore's softmax 5e-6


def arguments(dtype, tensor):
    """Return the arguments of every operation, arrays as tensors."""
    rng = np.random.default_rng(0)
    x, y = (tensor(rng.standard_normal((ROWS, COLUMNS)).astype(dtype)) for _ in range(2))
    column, row = (tensor(rng.uniform(0.5, 2, size).astype(dtype)) for size in (ROWS, COLUMNS))
    positive = tensor(rng.uniform(0.5, 2, (ROWS, COLUMNS)).astype(dtype))
    maps = tensor(rng.standard_normal((2, CLASSES, 3, 4)).astype(dtype))
    labels = tensor(np.where(rng.random((2, 3, 4)) < 0.2, 255, rng.integers(0, CLASSES, (2, 3, 4))).astype(np.uint8))
    indices = np.stack([rng.permutation(COLUMNS) for _ in range(ROWS)])
    mask, places = tensor(rng.random((ROWS, COLUMNS)) < 0.5), tensor(indices.astype(np.int32))
    places = numpy_ops.index(indices) if isinstance(x, np.ndarray) else places
    return {
        **dict.fromkeys(("exp", "square", "abs", "sin", "cos", "log_softmax", "softmax", "log_sigmoid"), (x,)),
        **dict.fromkeys(("zeros_like", "ones_like", "row_norms", "row_max", "row_sums", "cumsum", "largest"), (x,)),
        "log": (positive,),
        "sqrt": (positive,),
        "arctan2": (x, y),
        "maximum": (x, y),
        "logical_and": (mask, mask),
        "where": (mask, x, y),
        "stack": ((x, y),),
        "concat": ((x, y), 1),
        "clip": (x, -0.3, 0.7),
        "clip_": (x, -1.0, 1.0),
        "cross_entropy": (maps, labels, 255),
        "one_hot": (labels, CLASSES, x.dtype),
        "sort": (column, True),
        "argsort_descending": (x,),
        "round_to_fp32": (x,),
        "norm": (x, 1),
        "scale_rows": (x, column),
        "scale_rows_": (x, column),
        "scale_columns_": (x, row),
        "fill_zeros_": (x, mask),
        "exp_shifted_": (x, column),
        "matmul": (x, y, False, True, None),
        "remove_radial_": (x, y, column),
        "flip": (maps, 3),
        "class_map": (maps,),
        "after": (x, y),
        "all_gather": (x, 1),
        "sum_over_ranks": (x, 1),
        "max_over_ranks": (column, 1),
        "gather": (x, places),
    }


def functions(module):
    return {name for name, _ in inspect.getmembers(module, callable) if name[0].islower()}


def case_every_operation_exists(backend):
    ops = importlib.import_module(f"zoo.trainer.{backend.FRAMEWORK}.ops")
    own = {name for name in vars(numpy_ops) if callable(getattr(numpy_ops, name)) and name[0].islower()}
    elsewhere = {"resize_bilinear"} | (
        {"move_"} if backend.FRAMEWORK in ("mindspore", "jax") else set()
    )  # in a graph: ema.py
    assert own - elsewhere - functions(ops) == set()


def case_operations_compute_what_those_in_numpy_do(backend):
    ops = importlib.import_module(f"zoo.trainer.{backend.FRAMEWORK}.ops")
    for dtype, limit in LIMITS.items():
        expected = arguments(dtype, lambda array: array)
        for name, given in arguments(dtype, backend.to_tensor).items():
            copies = arguments(dtype, backend.to_tensor)[name] if name.endswith("_") else given
            found = backend.to_array(getattr(ops, name)(*copies))
            value = np.asarray(getattr(numpy_ops, name)(*expected[name]))
            assert found.shape == value.shape and found.dtype.kind == value.dtype.kind, name
            error = np.abs(found.astype(np.float64) - value).max() / max(np.abs(value.astype(np.float64)).max(), 1e-30)
            assert error <= (limit if name != "matmul" else 4 * limit), (name, dtype, error)
            if value.dtype.kind == "f":
                assert found.dtype == dtype, name


def case_the_correction_of_a_mean_keeps_its_digits(backend):
    """At the first updates, 1 - beta^t in fp32 would be off by 1e-5, as MindSpore's expm1 is on CPUs."""
    ops, like = (
        importlib.import_module(f"zoo.trainer.{backend.FRAMEWORK}.ops"),
        backend.to_tensor(np.ones(1, np.float32)),
    )
    for log_beta in (np.log(0.9), np.log(0.999)):
        for applied in (1, 2, 10, 1000, 100_000):
            given = backend.to_tensor(np.array([applied], np.float32))
            found = float(backend.to_array(ops.bias_correction(float(log_beta), given, like.dtype)).item())
            assert abs(found / -np.expm1(log_beta * applied) - 1) < 3e-7, (log_beta, applied)
