"""Time the frames of a stream with the state of a causal TSM: PyTorch, ONNX Runtime and mit-han-lab's online demo."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo import program
from zoo.bench import upstream
from zoo.bench.commands import deploy
from zoo.bench.commands.deploy import Calls
from zoo.commands.new_file import print_report, require_new
from zoo.commands.options import add_override_argument
from zoo.data.errors import UserError
from zoo.export import proof
from zoo.export.reference import StreamReference
from zoo.predict.stream import Shapes, state_shapes
from zoo.run.trained import Trained
from zoo.table import table
from zoo.trainer.protocol import Inference
from zoo.weights import names

RECIPE, CLASSES = "tsm_online_k400", 400
COUNT, SECONDS = 300, 120.0
OURS, ONNX, UPSTREAM = "PyTorch", "ONNX Runtime", "mit-han-lab's online_demo in PyTorch"
TOLERANCE = 1e-4  # of the logits of all contenders for the same frames, relative to the largest
COMPARED_FRAMES = 8
HEADER = ("computed by", "latency p50, ms", "p99, ms", "of the first", "CPU time, ms", "frames/s")
Step = Callable[[np.ndarray], np.ndarray]  # a frame uint8 (1, H, W, 3) -> its logits (1, K); keeps the state


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    if arguments.upstream:
        upstream.require_clones(arguments.upstream)
    deploy.use_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = deploy.build(RECIPE, arguments.override, folder, CLASSES).checkpoint
        settings: Any = checkpoint.cfg.data
        shape = (COMPARED_FRAMES, 1, settings.size, settings.size, 3)
        frames = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        steps = contenders(checkpoint, frames, folder, arguments.upstream)
        notes = compare(steps, frames)
        calls = deploy.time_calls(steps, frames[0], arguments.count, arguments.seconds)
    description = f"{checkpoint.model}, {settings.size} x {settings.size}, {deploy.describe_machine()}"
    lines = [*notes, *table(_cells(calls), HEADER, markdown=True), "", description]
    report = {"machine": description, "calls": {name: each.as_json() for name, each in calls.items()}}
    print_report(lines, report, arguments.json)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, "example: %(prog)s --threads 2 --upstream clones")
    deploy.add_timing_arguments(parser, COUNT, SECONDS)
    parser.add_argument(
        "--upstream", metavar="DIR", help="folder with a clone of mit-han-lab/temporal-shift-module, to time it, too"
    )
    add_override_argument(parser, f"change one key of {RECIPE}, such as -o model.name=tsm; repeatable")
    return parser


def contenders(checkpoint: Trained, frames: np.ndarray, folder: str, clones: str | None) -> dict[str, Step]:
    """Return functions of the next frame of a stream, by name; the others are compared with the first."""
    shapes = state_shapes(checkpoint.model, checkpoint.cfg)
    trainer = proof.load_trainer(checkpoint)
    steps = {OURS: stream(trainer, shapes), ONNX: stream(_exported(checkpoint, trainer, frames, folder), shapes)}
    if clones:
        steps[UPSTREAM] = online_demo(checkpoint, shapes, os.path.join(clones, "temporal-shift-module", "online_demo"))
    return steps


def stream(model: Inference, shapes: Shapes) -> Step:
    zeros = {f"state_{i}": np.zeros((1, *shape), np.float32) for i, shape in enumerate(shapes)}
    state: Sequence[Any] = tuple(model.to_device(zeros).values())

    def step(frame: np.ndarray) -> np.ndarray:
        nonlocal state
        logits, state = model.predict_frame(model.to_device({"video": frame[:, None]}), state)
        return logits

    return step


def online_demo(checkpoint: Trained, shapes: Shapes, folder: str) -> Step:
    """Return a stream of upstream's model with the same weights; its normalization is that of its ops/transforms.py."""
    if checkpoint.model != "tsm_mobilenet_v2":
        raise UserError(f"--upstream: its online demo is a MobileNetV2, and not {checkpoint.model}; leave one out")
    model = upstream.load(folder, "mobilenet_v2_tsm").MobileNetV2(len(checkpoint.class_names)).eval()
    import torch

    tensors = model.state_dict()
    ours = {name: checkpoint.tensors.get(names.canonical_name(name, "mit")) for name in tensors}
    if any(array is not None and array.shape != tensors[name].shape for name, array in ours.items()):
        raise UserError("--upstream: its online demo has another width; leave model.width out")
    found = {name: torch.from_numpy(array) for name, array in ours.items() if array is not None}
    model.load_state_dict({**tensors, **found})
    field = checkpoint.fields[0]
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (field.mean, field.std))
    state = [torch.zeros(1, *shape) for shape in shapes]

    @torch.no_grad()
    def step(frame: np.ndarray) -> np.ndarray:
        nonlocal state
        pixels = torch.from_numpy(frame).permute(0, 3, 1, 2).contiguous().float().div(255).sub_(mean).div_(std)
        logits, *state = model(pixels, *state)
        return logits.numpy()

    return step


def compare(steps: Mapping[str, Step], frames: np.ndarray) -> list[str]:
    """Compare the logits of all contenders for the first frames of a stream; return a line for each difference."""
    first, expected, lines = next(iter(steps)), None, []
    for name, step in steps.items():
        logits = np.concatenate([step(frame) for frame in frames])
        expected = logits if expected is None else expected
        difference = proof.relative(logits, expected)
        if not difference <= TOLERANCE:
            raise UserError(f"{name} differs from {first} by {difference:.1e}, more than {TOLERANCE:.0e}")
        if difference:
            lines.append(f"{name}: largest difference of {len(frames)} frames from {first} {difference:.1e}")
    return lines


def _cells(calls: Mapping[str, Calls]) -> list[list[str]]:
    base = next(iter(calls.values())).percentile(50)
    rows = []
    for name, each in calls.items():
        p50, p99 = each.percentile(50), each.percentile(99)
        milliseconds = [f"{1e3 * p50:.1f}", f"{1e3 * p99:.1f}"]
        rows.append([name, *milliseconds, f"{p50 / base:.2f}", f"{1e3 * each.cpu_per_sample:.1f}", f"{1 / p50:.1f}"])
    return rows


def _exported(checkpoint: Trained, trainer: Any, frames: np.ndarray, folder: str) -> Inference:
    reference = StreamReference(checkpoint, trainer, [frames.swapaxes(0, 1)], False)
    model = reference.build()
    path, facts = os.path.join(folder, "stream.onnx"), {"precision": "fp32", "states": reference.states}
    return deploy.run_exported(checkpoint, deploy.write_graph(checkpoint, model, reference.shape, path, **facts))
