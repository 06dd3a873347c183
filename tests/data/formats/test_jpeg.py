"""Boxes of JPEG files against the whole images that Pillow decodes."""

import io
import os
import subprocess
import sys

import cv2
import numpy as np
from PIL import Image

from tests.data.formats.test_headers import encode_jpeg
from tests.data.formats.test_images import smooth
from zoo.data.formats import headers, images, jpeg
from zoo.data.transforms.geometry import Geometry


def sampled_as(ratio):
    factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{ratio}")
    return cv2.imencode(".jpg", smooth(97, 65), [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor])[1].tobytes()


def test_a_box_of_jpeg_is_that_of_the_whole_image():
    rng, contents = np.random.default_rng(0), [sampled_as(ratio) for ratio in (411, 420, 422, 440, 444)]
    options = ({"progressive": True}, {"mode": "L"}, {"restart_marker_blocks": 3}, {"keep_rgb": True})
    contents += [encode_jpeg(97, 65, **option) for option in options]
    for content in contents:
        whole = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
        for _ in range(50):
            left, top = int(rng.integers(97)), int(rng.integers(65))
            width, height = int(rng.integers(1, 98 - left)), int(rng.integers(1, 66 - top))
            box = jpeg.decode_box(content, (left, top, width, height))
            assert np.array_equal(box, whole[top : top + height, left : left + width])


def test_boxes_of_rotated_and_of_damaged_jpeg_files(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    whole = encode_jpeg(97, 65)
    cut = whole[: len(whole) * 3 // 4] + headers.JPEG_END
    for name, content in (("turned.jpg", encode_jpeg(97, 65, exif=exif)), ("cut.jpg", cut)):
        (tmp_path / name).write_bytes(content)
        geometry = Geometry(box=(5, 7, 40, 33), size=(32, 32), antialias=True)
        by_rows = images.decode(images.read(str(tmp_path / name)), geometry)
        with monkeypatch.context() as patch:
            patch.setattr(jpeg, "decode_box", lambda *_: None)
            assert np.array_equal(images.decode(images.read(str(tmp_path / name)), geometry), by_rows)


def test_boxes_are_decoded_by_many_threads_at_once():
    program = """
import sys, threading
from zoo.data.formats import jpeg
content, results, start = sys.stdin.buffer.read(), [], threading.Barrier(8)
threads = [threading.Thread(target=lambda: (start.wait(), results.append(jpeg.decode_box(content, (1, 2, 30, 20)))))
           for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert len(results) == 8 and all((result == results[0]).all() for result in results)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=encode_jpeg(97, 65), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_decoder_of_boxes_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv(jpeg.CODECS, "/kept")
    before = dict(os.environ)
    assert jpeg._codec.__wrapped__() and dict(os.environ) == before
