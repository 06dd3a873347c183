"""One prediction and one update of a recipe, on a device and on the CPU from the same weights, and how they differ."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from zoo.bench.matrix.folder import write
from zoo.data.errors import UserError
from zoo.run import cli, restore
from zoo.run.job import assemble, join, sample_batch

LR = 0.1  # of the update
LIMITS = {"fp32": 1e-4, "fp64": 1e-9}  # of the loss, the prediction, the weights and the running statistics
PARTS = ("loss", "prediction", "weights", "statistics")  # that the limit is for
Tensors = dict[str, np.ndarray]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 1 if a difference is beyond its limit."""
    parser = argparse.ArgumentParser(prog="zoo.bench.gpu_checks.parity", description=__doc__)
    cli.add_recipe_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="receives the differences")
    parser.add_argument("--side", metavar="FILE", help=argparse.SUPPRESS)  # receives the tensors of one device
    arguments = parser.parse_args(argv)
    try:
        if arguments.side:
            compute_side(cli.request_of(arguments), arguments.side)
            return 0
        compute = cli.request_of(arguments).config.train.precision
        if compute not in LIMITS:
            raise UserError(f"train.precision: {compute} has no limit here; choose one of {', '.join(LIMITS)}")
        return report(compare_devices(sys.argv[1:] if argv is None else argv, arguments.device or "auto"), arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compute_side(request: cli.Request, path: str) -> None:
    """Write prediction, loss, gradients, and the tensors after an update, all on one device; may end the process.

    Args:
        request: the recipe.
        path: of the file.
    """
    job = assemble(request, join(request, {}))
    restore.restore(request.config, job, None, print)
    trainer, name = job.trainer, job.plan.fields[0].name
    before = trainer.state_dict()
    batch = sample_batch(job)
    tensors: Tensors = {"prediction": np.asarray(trainer.predict({name: batch[name]}))}
    output = trainer.read(trainer.step([batch] * job.plan.accumulate, LR, 0))
    tensors["loss"] = np.asarray(output["loss"])
    after = trainer.state_dict()
    tensors |= {f"gradient/{key}": value for key, value in trainer.gradients().items()}
    for param in trainer.params:
        kind = "statistics" if param.is_statistic else "weights"
        tensors[f"{kind}/{param.name}"] = after[param.name]
        if not param.is_statistic:
            tensors[f"change/{param.name}"] = after[param.name] - before[param.name]
    metadata = {"device": job.world.device, "compute": job.plan.mode.compute}
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, path, metadata)
    job.world.close()
    job.group.close()
    job.world.exit_process(0)


def compare_devices(words: list[str], device: str) -> dict[str, Any]:
    """Compute both sides in processes of their own, and compare them.

    Args:
        words: command line of this program.
        device: compared with the CPU.

    Raises:
        UserError: a side failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for name, on in (("cpu", "cpu"), ("device", device)):
            path = str(Path(folder) / f"{name}.safetensors")
            command = [sys.executable, "-m", "zoo.bench.gpu_checks.parity", *words, "--device", on, "--side", path]
            if subprocess.run(command, check=False).returncode:
                raise UserError(f"the update on {on} failed; the lines above tell why")
            sides.append(load_file(path))
    return differences(sides[1], sides[0])


def differences(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the largest difference of each part, relative to the largest value of its tensor, and where it is.

    Args:
        found: tensors of the device, by `part/name`.
        expected: those of the CPU.

    Raises:
        UserError: the two have different tensors.
    """
    if found.keys() != expected.keys():
        raise UserError(f"the devices have different tensors: {sorted(found.keys() ^ expected.keys())[:5]}")
    worst: dict[str, Any] = {}
    for key, value in expected.items():
        part, _, name = key.partition("/")
        size = relative_difference(found[key], value)
        if part not in worst or not size <= worst[part]["difference"]:  # a difference that is no number counts
            worst[part] = {"difference": size, "tensor": name}
    return worst


def relative_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Return max|a - b| / max|b|; the share of different elements for whole numbers; inf if anything is not finite."""
    if found.shape != expected.shape:
        return float("inf")
    if not np.issubdtype(expected.dtype, np.floating):
        return float(np.mean(found != expected))
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return float("inf")
    distance = float(np.abs(found.astype(np.float64) - expected).max(initial=0))
    largest = float(np.abs(expected).max(initial=0))
    return distance / largest if largest else (0.0 if distance == 0 else float("inf"))


def report(worst: Mapping[str, Any], arguments: argparse.Namespace) -> int:
    """Print and write the differences; return 1 if one is beyond the limit."""
    compute = cli.request_of(arguments).config.train.precision
    limit = LIMITS[compute]
    beyond = [part for part in PARTS if not worst[part]["difference"] <= limit]
    for part, value in worst.items():
        remark = f"limit {limit:g}" if part in PARTS else "no limit"
        print(f"{part:<11} {value['difference']:9.2e}  {remark}  {value['tensor']}")
    print(f"{compute}: " + (f"beyond the limit: {', '.join(beyond)}" if beyond else "equal within the limit"))
    if arguments.json:
        values = {part: value["difference"] for part, value in worst.items()}
        where = {part: value["tensor"] for part, value in worst.items()}
        write(
            Path(arguments.json),
            json.dumps({"compute": compute, "limit": limit, "beyond": beyond, **values, "where": where}, indent=1),
        )
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
