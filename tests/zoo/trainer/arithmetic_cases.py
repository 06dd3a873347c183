"""The cases of the recorded arithmetic on a CPU, one body over all frameworks (test_trainer.py)."""

import json
from itertools import product

from zoo.trainer.plan import Arithmetic


def expected_settings(framework: str, arithmetic: Arithmetic) -> dict[str, bool]:
    """Return settings that World.arithmetic() reports; only PyTorch and JAX have them without a GPU."""
    if framework == "jax":
        return {"jax_default_matmul_precision": "tensorfloat32" if arithmetic.tf32 else "float32"}
    if framework != "torch":
        return {}
    return {
        "torch.backends.cuda.matmul.allow_tf32": arithmetic.tf32,
        "torch.backends.cudnn.allow_tf32": arithmetic.tf32,
        "torch.backends.cudnn.benchmark": arithmetic.cudnn_benchmark,
        "torch.backends.cudnn.deterministic": arithmetic.deterministic,
        "torch.are_deterministic_algorithms_enabled": arithmetic.deterministic,
    }


def case_settings_in_force_are_reported(backend):
    """In any order of the changes, and fit for a journal."""
    try:
        for arithmetic in [Arithmetic(*flags) for flags in (*product((False, True), repeat=3), (True, False))]:
            backend.WORLD.set_arithmetic(arithmetic)
            reported = backend.WORLD.arithmetic()
            assert reported == json.loads(json.dumps(reported))
            expected = expected_settings(backend.FRAMEWORK, arithmetic)
            assert {name: reported.get(name) for name in expected or reported} == expected
    finally:
        backend.WORLD.set_arithmetic(Arithmetic())
