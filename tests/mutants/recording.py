"""Record a proof of tools/compare.py in the process of a worker, whose repository may have a fault."""

from collections.abc import Sequence
from typing import Any

PRECISIONS = ("fp64", "fp32")
UPDATES = 2  # the second one has momentum


def record_proof(framework: str, recipe: str, overrides: Sequence[str], prefix: str) -> dict[str, Any]:
    """Write <prefix>-<precision>.safetensors for both precisions.

    Everything of the repository is imported here, because a fault is planted before this process begins.
    """
    from zoo.compare import proof
    from zoo.run import cli
    from zoo.run.job import assemble, join, restore

    proof.UPDATES = UPDATES
    eager = ["train.compile=false"]  # MindSpore would compile for longer than it computes
    request = cli.request(f"configs/{recipe}_demo.yaml", [*overrides, *eager], framework=framework, device="cpu")
    job = assemble(request, join(request, {}))
    restore(request.config, job, None, print)
    state = job.trainer.state_dict()
    weights = {param.name: state[param.name] for param in job.trainer.params}
    batches = proof.batches(job, request.config.seed)
    for precision in PRECISIONS:
        proof.record(job, request.config, precision, weights, batches).save(f"{prefix}-{precision}.safetensors")
    return {"outcome": "recorded", "message": ""}
