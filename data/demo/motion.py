"""The demo set: K400-shaped, H.264-encoded clips whose eight classes differ only by motion in time.

Every clip exists forwards and backwards, under opposite labels (left/right, up/down, grow/shrink, clockwise/
counterclockwise). So a network that cannot tell the order of frames guesses between the two: 50 % at best.
Made at first use, in seconds, always with the same bytes.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import cv2
import numpy as np

from data import order
from data.datasets import kinetics
from data.demo.common import cache

CLASSES = ("left", "right", "up", "down", "grow", "shrink", "clockwise", "counterclockwise")
WIDTH, HEIGHT, FRAMES, RATE = 96, 72, 24, 12  # pixels, pixels, frames, frames per second
SEED = 2026
DISCS = 60  # on a scene nine times the size of the frame
checksum = kinetics.checksum


@dataclass(frozen=True)
class Settings(kinetics.Settings):
    """The `data:` section of a recipe on the motion set."""

    root: str = "datasets/motion"
    flip_pairs: tuple[tuple[int, int], ...] = ((0, 1), (6, 7))  # a mirrored clip moves the other way
    train_clips: int = 640
    val_clips: int = 160

    def __post_init__(self):
        super().__post_init__()
        for key in ("train_clips", "val_clips"):
            if getattr(self, key) < len(CLASSES) or getattr(self, key) % len(CLASSES):
                raise ValueError(f"{key}: must be a multiple of {len(CLASSES)}, the number of classes")


def load(settings: Settings) -> tuple[kinetics.ClipSplit, kinetics.ClipSplit]:
    """Make the set if it is not there, then load it like Kinetics."""
    if not os.path.isdir(settings.root):
        make(settings.root, settings.train_clips, settings.val_clips)
    cache.check(settings.root, "motion", _recipe(settings.train_clips, settings.val_clips))
    return kinetics.load(settings)


def make(root: str, train_clips: int, val_clips: int) -> None:
    """Write the set; a folder of this name is always whole."""
    print(f"making the demo set in {root}: {train_clips + val_clips} short H.264 clips ...", flush=True)

    def fill(folder: str) -> None:
        for split, count in (("train", train_clips), ("val", val_clips)):
            # Two clips, forwards and backwards, per number.
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                lines = list(pool.map(lambda number: _write_pair(folder, split, number), range(count // 2)))
            with open(os.path.join(folder, f"{split}.list"), "w", encoding="utf-8") as file:
                file.writelines(line for pair in lines for line in pair)
        with open(os.path.join(folder, "classes.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(CLASSES) + "\n")

    cache.write(root, "motion", _recipe(train_clips, val_clips), fill)


def _recipe(train_clips: int, val_clips: int) -> dict:
    return {"version": 1, "train_clips": train_clips, "val_clips": val_clips}


def _write_pair(root: str, split: str, number: int) -> list[str]:
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
    """A clip (FRAMES, HEIGHT, WIDTH, 3) of class 2 * axis: random discs over a dim texture, under one steady motion."""
    side = 3 * WIDTH
    scene = cv2.resize(rng.random((12, 12, 3), dtype=np.float32) * 40, (side, side), interpolation=cv2.INTER_CUBIC)
    for _ in range(DISCS):
        center, radius = tuple(int(value) for value in rng.integers(0, side, 2)), int(rng.integers(7, 13))
        color = rng.uniform(130, 255, 3)
        color[rng.integers(3)] *= rng.uniform(0.2, 1)
        cv2.circle(scene, center, radius, tuple(float(value) for value in color), -1, cv2.LINE_AA)
    scene = np.clip(scene, 0, 255).astype(np.uint8)
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
        matrix = cv2.getRotationMatrix2D((side / 2, side / 2), angle, scale)
        matrix[:, 2] += shift + np.array([WIDTH - side, HEIGHT - side]) / 2
        frames.append(
            cv2.warpAffine(scene, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        )
    return np.stack(frames)


def encode(path: str, frames: np.ndarray, rate: int) -> None:
    """Write (L, H, W, 3) RGB frames as H.264 in mp4; the same frames give the same bytes."""
    import av

    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(rate))
        stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], "yuv420p"
        stream.options = {"crf": "20", "preset": "veryfast", "threads": "1", **_cpu_options()}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode())


@lru_cache(maxsize=1)
def _cpu_options() -> dict:
    """Options that keep x264 deterministic: its AVX-512 code gives other bytes from one encoding to the next."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            has_avx512 = "avx512" in file.read()
    except OSError:
        has_avx512 = False
    return {"x264-params": "asm=avx2"} if has_avx512 else {}
