"""Files, cameras and addresses as sources of frames; a server of this process stands for a camera in the network."""

import threading
from fractions import Fraction
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np
import pytest

from tests.helpers import clips
from zoo.data.errors import UserError
from zoo.predict import overlay, stream_sources
from zoo.predict.stream_sources import open_source

FRAMES = 20


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return clips.encode(tmp_path_factory.mktemp("videos") / "a.mp4", clips.numbered(FRAMES), rate=Fraction(10))


class Handler(BaseHTTPRequestHandler):
    """Send bytes: all, all without saying how many there will be, or the first ones and then nothing."""

    def __init__(self, content, how, closing, *arguments):
        self.content, self.how, self.closing = content, how, closing
        super().__init__(*arguments)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "video/mp2t")
        if self.how == "whole":
            self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[: len(self.content) * 2 // 3] if self.how == "stalls" else self.content)
        self.wfile.flush()
        if self.how == "stalls":
            self.closing.wait(20)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    """Return a function that serves bytes and returns the address."""
    servers, closing = [], threading.Event()

    def start(content, how="whole"):
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, content, how, closing))
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/live.ts"

    yield start
    closing.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def transport_stream(tmp_path_factory):
    path = clips.encode(tmp_path_factory.mktemp("ts") / "a.ts", clips.numbered(60), rate=10, gop=5)
    with open(path, "rb") as file:
        return file.read()


def test_a_file(video):
    source = open_source(video, 1.0)
    assert (source.name, source.is_live, source.rate) == (video, False, 10)
    frames = list(source.frames)
    source.close()
    assert [frame.number for frame in frames] == list(range(FRAMES))
    assert [frame.time for frame in frames] == pytest.approx([number / 10 for number in range(FRAMES)])
    expected = [pixels for pixels, _ in overlay.read_video(video)]
    assert all(np.array_equal(frame.pixels(), pixels) for frame, pixels in zip(frames, expected, strict=True))
    assert clips.read_numbers([frame.pixels() for frame in frames]) == list(range(FRAMES))


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "no such file; give a video, a camera .* rtsp:// or http://"),
        (b"no video", "cannot be opened as video"),
    ],
)
def test_a_file_that_is_no_video(content, message, tmp_path):
    path = tmp_path / "a.mp4"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"a.mp4: {message}"):
        open_source(str(path), 1.0)


def test_an_address(serve, transport_stream):
    source = open_source(serve(transport_stream), 5.0)
    assert source.is_live and source.rate == 10
    numbers = clips.read_numbers([frame.pixels() for frame in source.frames])
    assert numbers == list(range(60))  # also those that FFmpeg looked at to open it
    source.close()


def test_an_address_that_falls_silent(serve, transport_stream):
    source = open_source(serve(transport_stream, "stalls"), 0.5)
    with pytest.raises(UserError, match=r"live.ts: no frame for 0.5 s; .*--timeout"):
        list(source.frames)
    source.close()


@pytest.mark.parametrize("scheme", ["http", "rtsp"])
def test_an_address_where_nobody_listens(scheme):
    with pytest.raises(UserError, match=rf"--stream {scheme}://127.0.0.1:9/a: cannot be opened .*check the address"):
        open_source(f"{scheme}://user:secret@127.0.0.1:9/a?key=secret", 1.0)


def test_a_playlist_that_names_files_of_this_machine_is_refused(serve, video):
    with pytest.raises(UserError, match="cannot be opened"):
        open_source(serve(f"ffconcat version 1.0\nfile {video}\n".encode()), 1.0)


def test_other_protocols_are_refused():
    with pytest.raises(UserError, match="ftp:// is not supported; give one of rtsp, rtsps, http, https"):
        open_source("ftp://host/a.mp4", 1.0)


class Camera:
    """A camera of three blue frames."""

    rate, is_open = 30.0, True

    def __init__(self, number, api):
        assert (number, api) == (3, cv2.CAP_V4L2)
        self.left, self.released = 3, False

    def isOpened(self):
        return self.is_open

    def set(self, key, value):
        return True

    def get(self, key):
        return self.rate

    def read(self):
        self.left -= 1
        return self.left >= 0, np.full((4, 6, 3), (255, 0, 0), np.uint8)

    def release(self):
        self.released = True


@pytest.fixture
def camera(monkeypatch):
    monkeypatch.setattr(stream_sources.cv2, "VideoCapture", Camera)
    exists = stream_sources.os.path.exists
    monkeypatch.setattr(stream_sources.os.path, "exists", lambda path: path == "/dev/video3" or exists(path))


@pytest.mark.parametrize("name", ["3", "/dev/video3"])
def test_a_camera(name, camera):
    source = open_source(name, 1.0)
    assert (source.name, source.is_live, source.rate) == ("/dev/video3", True, 30)
    frames = []
    with pytest.raises(UserError, match=r"/dev/video3: the camera gives no more frames"):
        frames.extend(frame.pixels() for frame in source.frames)
    assert len(frames) == 3 and frames[0][0, 0].tolist() == [0, 0, 255]  # RGB
    assert source.close.__self__.released is False
    source.close()
    assert source.close.__self__.released
