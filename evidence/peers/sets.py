"""Files of the size and kind of the real data sets: textures with the spectrum of photographs, objects and film noise.

They are made from fixed seeds, once per folder.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from zoo import program
from zoo.data import order
from zoo.data.demo.common import map_threads
from zoo.data.extras import av, cv2

SEED = 16
IMAGES, CLASSES = 384, 8
IMAGE_SIZE, IMAGE_QUALITY = (500, 375), 90
CLIPS, FRAMES, RATE = 24, 300, 30
CLIP_SIZE, FRAME_QUALITY = (340, 256), 85
PAIRS, PAIR_SIZE, IDS = 16, (2048, 1024), (7, 8, 11, 21, 22, 23, 24, 26, 33)
IDENTITIES, FACES_EACH = 200, 10
FACE_SIZE, FACE_QUALITY = (112, 112), 85


def complete(folder: str, fill: Callable[[str], None]) -> str:
    """Return a folder, filled if it does not exist; a folder that an interrupted program left is filled anew."""
    if not os.path.isdir(folder):
        print(f"making {folder} ...", flush=True)
        unfinished = f"{folder}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished)
        fill(unfinished)
        os.rename(unfinished, folder)
    return folder


def images(folder: str) -> None:
    """Write JPEG files in the layout of ImageNet, about 100 kB each."""

    def write(number: int) -> None:
        split = "train" if number < IMAGES else "val"
        path = os.path.join(folder, split, f"class{number % CLASSES}", f"{number:05d}.JPEG")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write_jpeg(path, _photo("image", number, IMAGE_SIZE, 1.1, 2.5), IMAGE_QUALITY)

    map_threads(write, range(IMAGES + CLASSES))


def clips(folder: str) -> None:
    """Write H.264 files of ten seconds with x264's default preset and keyframe interval, and lists."""
    map_threads(partial(_write_clip, folder), range(CLIPS + 1))
    _write_lists(folder, "clip{:03d}.mp4 {}")


def frames(folder: str, clips_folder: str) -> None:
    """Write each frame of the clips as a JPEG file, and lists."""

    def write(number: int) -> None:
        os.makedirs(os.path.join(folder, f"clip{number:03d}"))
        with av.open(os.path.join(clips_folder, f"clip{number:03d}.mp4")) as container:
            for at, frame in enumerate(container.decode(video=0), 1):
                path = os.path.join(folder, f"clip{number:03d}", f"img_{at:05d}.jpg")
                _write_jpeg(path, frame.to_ndarray(format="bgr24"), FRAME_QUALITY)

    map_threads(write, range(CLIPS + 1))
    _write_lists(folder, f"clip{{:03d}} {FRAMES} {{}}")


def scenes(folder: str) -> None:
    """Write PNG files with masks in the layout of Cityscapes."""

    def write(number: int) -> None:
        split, name = ("train" if number < PAIRS else "val"), f"aachen/aachen_{number:06d}_000019"
        image = os.path.join(folder, "leftImg8bit", split, f"{name}_leftImg8bit.png")
        mask = os.path.join(folder, "gtFine", split, f"{name}_gtFine_labelIds.png")
        for path in (image, mask):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        cv2.imwrite(image, _photo("scene", number, PAIR_SIZE, 1.7, 0.5), [cv2.IMWRITE_PNG_COMPRESSION, 6])
        field = _texture(order.generator(SEED, "mask", number), PAIR_SIZE, 2.2)
        levels = np.quantile(field, np.linspace(0, 1, len(IDS) + 1)[1:-1])
        cv2.imwrite(mask, np.array(IDS, np.uint8)[np.digitize(field, levels)])

    map_threads(write, range(PAIRS + 2))


def faces(folder: str) -> None:
    """Write a pack of JPEG files as insightface's, by this project's own program."""
    source = os.path.join(folder, "source")

    def write(number: int) -> None:
        path = os.path.join(source, "train", f"person{number // FACES_EACH:04d}", f"{number:06d}.jpg")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write_jpeg(path, _photo("face", number, FACE_SIZE, 1.4, 1.2), FACE_QUALITY)

    map_threads(write, range(IDENTITIES * FACES_EACH))
    prepare(os.path.join(folder, "pack"), "faces", source, "--pack")


def prepare(out: str, kind: str, source: str, *options: str) -> None:
    """Run zoo data prepare."""
    command = program.command("data", "prepare", kind, source, *options, "--out", out)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _write_jpeg(path: str, bgr: np.ndarray, quality: int) -> None:
    cv2.imwrite(path, bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])


def _write_lists(folder: str, line: str) -> None:
    for name, numbers in (("train.list", range(CLIPS)), ("val.list", range(CLIPS, CLIPS + 1))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.writelines(line.format(number, number % CLASSES) + "\n" for number in numbers)


def _write_clip(folder: str, number: int) -> None:
    width, height = CLIP_SIZE
    with av.open(os.path.join(folder, f"clip{number:03d}.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.thread_count = 1  # bytes do not depend on the number of cores
        for frame in _film(order.generator(SEED, "clip", number), width, height):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="bgr24")))
        container.mux(stream.encode())


def _film(rng: np.random.Generator, width: int, height: int) -> Iterator[np.ndarray]:
    """Yield uint8 frames: a camera that pans and zooms over a texture, an object that moves on its own, film noise."""
    background = _color(rng, (2 * width, 2 * height), 1.3)
    thing = _color(rng, (width // 3, height // 3), 1.3)
    speed, phase = rng.uniform(0.5, 1.5, 4), rng.uniform(0, 6, 4)
    for number in range(FRAMES):
        at = number / RATE
        zoom = 1 + 0.15 * np.sin(0.7 * speed[0] * at + phase[0])
        shift = [side / 2 * (1 + 0.8 * np.sin(0.4 * speed[i] * at + phase[i])) for i, side in ((1, width), (2, height))]
        view = np.array([[zoom, 0, shift[0]], [0, zoom, shift[1]]])
        frame = cv2.warpAffine(background, view, (width, height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        left = int((width - thing.shape[1]) * (0.5 + 0.5 * np.sin(speed[3] * at + phase[3])))
        top = height // 3
        frame[top : top + thing.shape[0], left : left + thing.shape[1]] = thing
        grain = rng.normal(0, 1.2, frame.shape[:2])[:, :, None]
        yield np.clip(frame + grain, 0, 255).astype(np.uint8)


def _photo(purpose: str, number: int, size: tuple[int, int], slope: float, grain: float) -> np.ndarray:
    """Return an image, uint8 BGR (height, width, 3), of some objects before a background.

    A higher slope of the spectrum is smoother; grain is the standard deviation of the noise.
    """
    rng = order.generator(SEED, purpose, number)
    pixels = _color(rng, size, slope)
    for _ in range(6):
        center = [int(rng.uniform(0, side)) for side in size]
        axes = [int(side * rng.uniform(0.05, 0.25)) for side in size]
        inside = np.zeros(pixels.shape[:2], np.uint8)
        cv2.ellipse(inside, center, axes, rng.uniform(0, 180), 0, 360, [1], -1)
        other = np.roll(pixels, axes, (0, 1))[:, ::-1] * rng.uniform(0.5, 1.2, 3)
        pixels = np.where(inside[:, :, None] > 0, other, pixels)
    return np.clip(pixels + rng.normal(0, grain, pixels.shape), 0, 255).astype(np.uint8)


def _color(rng: np.random.Generator, size: tuple[int, int], slope: float) -> np.ndarray:
    """Return a colored texture, float32 (height, width, 3) around 120."""
    luma, *chroma = (_texture(rng, size, of_plane) for of_plane in (slope, slope + 0.4, slope + 0.4))
    return np.stack([120 + 50 * luma + 15 * (chroma[0] * a + chroma[1] * b) for a, b in ((1, 0), (-1, 1), (0, -1))], 2)


def _texture(rng: np.random.Generator, size: tuple[int, int], slope: float) -> np.ndarray:
    """Return noise whose amplitude falls with the frequency to the power of `slope`: float32 (height, width), std 1."""
    width, height = size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None] * height, np.fft.rfftfreq(width)[None] * width)
    frequency[0, 0] = np.inf  # no mean
    noise = np.fft.rfft2(rng.standard_normal((height, width), np.float32))
    field = np.fft.irfft2(noise / frequency**slope, (height, width))
    return (field / field.std()).astype(np.float32)
