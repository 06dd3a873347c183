"""Files by address, from a server of this process."""

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from zoo.data.errors import BadSample
from zoo.predict import urls
from zoo.predict.urls import file_name, is_url, local_path, shown_name, without_secrets
from zoo.weights import download

CONTENT = os.urandom(200_000)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/lost"):
            return self.send_error(404)
        if self.path.startswith("/silent"):
            self.server.is_over.wait(10)
            return None
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: 1000 if self.path.startswith("/cut") else None])

    def log_message(self, *words):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        found.is_over = threading.Event()
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.is_over.set()
        found.shutdown()
        thread.join()


def test_a_file_is_downloaded_and_removed(server):
    with local_path(f"{server}/photos/a.JPG?size=3") as path:
        assert path.endswith(".JPG")
        with open(path, "rb") as file:
            assert file.read() == CONTENT
    assert not os.path.exists(path)
    with local_path("a.jpg") as path:
        assert path == "a.jpg"


@pytest.mark.parametrize(
    "address, message",
    [
        ("{server}/lost.jpg", r"cannot be downloaded \(HTTP Error 404: Not Found\); check the address"),
        ("{server}/cut.jpg", "the connection ended too early"),
        ("{server}/silent.jpg", "cannot be downloaded .*timed out"),
        ("http://127.0.0.1:1/a.jpg", "cannot be downloaded .*refused"),
        ("http://me:secret@host/a.jpg", r"cannot be downloaded \(addresses with a user or a password are not taken\)"),
        ("http://[/a.jpg", "cannot be downloaded .*; check the address"),
        ("{server}/a.jpg", "has more than 0 MiB; download it yourself first"),
    ],
)
def test_what_cannot_be_downloaded(server, address, message, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_S", 0.5)
    if "0 MiB" in message:
        monkeypatch.setattr(urls, "MAX_BYTES", 1000)
    with pytest.raises(BadSample, match=message), local_path(address.format(server=server)):
        pytest.fail("it was downloaded")


def test_secrets_in_addresses_are_not_shown():
    assert without_secrets("rtsp://admin:p@ss@10.0.0.1:554/h264?token=1") == "rtsp://10.0.0.1:554/h264"
    assert without_secrets("rtsp://admin:p?a#b@10.0.0.1/h264#token") == "rtsp://10.0.0.1/h264"
    assert without_secrets("http://host/a@b.mp4") == "http://host/a@b.mp4"
    assert shown_name("a?b=c.jpg") == "a?b=c.jpg" and shown_name("https://h/a.jpg") == "https://h/a.jpg"
    first, second = (shown_name(f"https://me:pw@h/a.jpg?token={key}") for key in "ab")
    assert first.startswith("https://h/a.jpg?sha256=") and first != second


def test_names_of_addresses():
    assert is_url("HTTPS://host/a.jpg") and not is_url("rtsp://host/a") and not is_url("http_a.jpg")
    assert (
        file_name("https://host/b/a.mp4?x=/y.jpg#z") == "https://host/b/a.mp4" and file_name("b/a?.mp4") == "b/a?.mp4"
    )
