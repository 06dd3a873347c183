"""The demo set of clips: H.264 files in the layout of Kinetics-400, whose eight classes differ only by motion.

Every clip occurs forwards and backwards, with opposite labels (left/right, up/down, grow/shrink, clockwise/
counterclockwise). A model that ignores the order of frames can only guess between the two: at most 50 %. The set is
generated at first use, in seconds, always with the same bytes.
"""

import os
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Annotated

import numpy as np

from zoo.data import order
from zoo.data.datasets import kinetics
from zoo.data.demo import common
from zoo.data.extras import av, cv2
from zoo.data.fields import Doc, FilePath, Word
from zoo.data.host import x264_parameters

CLASSES = ("left", "right", "up", "down", "grow", "shrink", "clockwise", "counterclockwise")
WIDTH, HEIGHT, FRAMES, RATE = 96, 72, 24, 12  # pixels, pixels, frames, frames per second
SEED = 2026
DISCS = 60  # in a scene nine times the size of the frame
describe = kinetics.describe


@dataclass(frozen=True)
class Settings(kinetics.Settings):
    """The `data:` section of a recipe on the motion set."""

    root: FilePath = "datasets/motion"
    set: Word | None = "motion"
    flip_pairs: tuple[tuple[int, int], ...] = ((0, 1), (6, 7))  # a mirrored clip moves in the opposite direction
    train_clips: Annotated[int, Doc("Training clips that are generated.")] = 640
    val_clips: Annotated[int, Doc("Validation clips that are generated.")] = 160

    def __post_init__(self):
        super().__post_init__()
        common.check_multiple(self, ("train_clips", "val_clips"), len(CLASSES))


def load(settings: Settings) -> tuple[kinetics.ClipSplit, kinetics.ClipSplit]:
    """Generate the set if it does not exist, then open it like Kinetics."""
    root = make(settings.root, settings.train_clips, settings.val_clips)
    return kinetics.load(replace(settings, root=root))


def make(root: str, train_clips: int, val_clips: int) -> str:
    """Write the set to `root`, unless it is there; return its folder (see common.write)."""

    def fill(folder: str) -> None:
        for split, count in (("train", train_clips), ("val", val_clips)):
            # Each number is a pair of clips, forwards and backwards.
            lines = common.map_threads(partial(_write_pair, folder, split), range(count // 2))
            with open(os.path.join(folder, f"{split}.list"), "w", encoding="utf-8") as file:
                file.writelines(line for pair in lines for line in pair)
        with open(os.path.join(folder, "classes.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(CLASSES) + "\n")

    content = f"{train_clips + val_clips} short H.264 clips"
    recipe = {"version": 1, "train_clips": train_clips, "val_clips": val_clips}
    return common.write(root, "motion", recipe, content, fill)


def _write_pair(root: str, split: str, number: int) -> list[str]:
    """Write one clip forwards and backwards, and return their lines of the list."""
    axis = number % (len(CLASSES) // 2)
    frames = render(axis, order.generator(SEED, split, number))
    lines = []
    for label, clip in ((2 * axis, frames), (2 * axis + 1, frames[::-1])):
        path = f"{split}/{CLASSES[label]}/{number:05d}.mp4"
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        encode(os.path.join(root, path), clip, RATE)
        lines.append(f"{path} {label}\n")
    return lines


def render(axis: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a clip of class 2 * axis: random discs over a dim texture in constant motion.

    Returns:
        uint8 RGB (FRAMES, HEIGHT, WIDTH, 3).
    """
    size = 3 * WIDTH
    scene = _random_scene(size, rng)
    speed, phase = rng.uniform(0.75, 1.25), rng.uniform(0, 360)
    frames = []
    for time in np.arange(FRAMES) - (FRAMES - 1) / 2:
        shift, scale, angle = np.zeros(2), 1.0, phase
        if axis == 0:
            shift[0] = -3.0 * speed * time  # pixels: the scene moves left
        elif axis == 1:
            shift[1] = -3.0 * speed * time  # up
        elif axis == 2:
            scale = 1.06 ** (speed * time)  # grows
        else:
            angle = phase - 8.0 * speed * time  # degrees; OpenCV counts counterclockwise
        matrix: np.ndarray = cv2.getRotationMatrix2D((size / 2, size / 2), angle, scale)
        matrix[:, 2] += shift + np.array([WIDTH - size, HEIGHT - size]) / 2
        frames.append(
            cv2.warpAffine(scene, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        )
    return np.stack(frames)


def _random_scene(size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw random discs over a dim texture: uint8 (size, size, 3)."""
    scene = cv2.resize(rng.random((12, 12, 3), dtype=np.float32) * 40, (size, size), interpolation=cv2.INTER_CUBIC)
    for _ in range(DISCS):
        x, y = (int(value) for value in rng.integers(0, size, 2))
        radius = int(rng.integers(7, 13))
        color = rng.uniform(130, 255, 3)
        color[rng.integers(3)] *= rng.uniform(0.2, 1)
        cv2.circle(scene, (x, y), radius, tuple(float(value) for value in color), -1, cv2.LINE_AA)
    return np.clip(scene, 0, 255).astype(np.uint8)


def encode(path: str, frames: np.ndarray, rate: int) -> None:
    """Write (L, H, W, 3) RGB frames as H.264 in mp4; equal frames give equal bytes."""
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(rate))
        stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], "yuv420p"
        options: dict[str, object] = {"crf": "20", "preset": "veryfast", "threads": "1"}
        if x264_parameters():
            options["x264-params"] = ":".join(x264_parameters())
        stream.options = options
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode())
