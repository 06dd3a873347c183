"""Downloads from a server on this host: hashes, cuts, resumption, several hosts, a full disk."""

import hashlib
import os
import re
import socket

import pytest

from tests.helpers.server import serving
from zoo.weights import download as module
from zoo.weights.download import NotDownloaded, download

CONTENT = os.urandom(700_000)
DIGITS = hashlib.sha256(CONTENT).hexdigest()[:8]


@pytest.fixture
def server():
    with serving() as found:
        found.files = {"w.pth": CONTENT}
        yield found


def refused(path, *urls, digits=DIGITS):
    """Return the message of a download that must fail, in one line and without a file of its name."""
    with pytest.raises(NotDownloaded) as caught:
        download(urls, str(path), digits)
    message = str(caught.value)
    assert not path.exists() and "\n" not in message and message.endswith(f". Place {urls[0]} as {path}")
    return message


def test_a_file_is_downloaded_once(server, tmp_path, capsys):
    path = tmp_path / "w.pth"
    for _ in range(2):
        download([server.url + "w.pth"], str(path), DIGITS)
    assert path.read_bytes() == CONTENT and os.listdir(path.parent) == ["w.pth"]
    assert server.requests == [("w.pth", 0)]
    assert capsys.readouterr().err == f"downloading {server.url}w.pth\n"


def test_progress_is_shown_on_a_terminal(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(module, "CHUNK_BYTES", 1 << 19)
    server.files["w.pth"] = bytes(3 << 20)
    download([server.url + "w.pth"], str(tmp_path / "w.pth"), mib=3.1)
    first, *shown = re.split("[\r\n]", capsys.readouterr().err)
    assert first.startswith("downloading") and (shown[0], shown[-2:]) == (
        "w.pth: 0 of 3 MiB",
        ["w.pth: 3 of 3 MiB", ""],
    )


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_download_goes_on(server, tmp_path, ranges):
    server.cut, server.ranges = [300_000], ranges
    path, url = tmp_path / "w.pth", server.url + "w.pth"
    assert "the connection ended too early (the next call goes on from 0.3 MiB)" in refused(path, url)
    assert os.listdir(tmp_path) == ["w.pth.part"] and os.path.getsize(tmp_path / "w.pth.part") == 300_000
    download([url], str(path), DIGITS)
    assert path.read_bytes() == CONTENT and os.listdir(tmp_path) == ["w.pth"]
    assert server.requests == [("w.pth", 0), ("w.pth", 300_000 if ranges else 0)]


def test_a_part_with_all_bytes_is_complete(server, tmp_path):
    """As when a process is killed before it renames the file: the server has nothing beyond its end."""
    (tmp_path / "w.pth.part").write_bytes(CONTENT)
    download([server.url + "w.pth"], str(tmp_path / "w.pth"), DIGITS)
    assert (tmp_path / "w.pth").read_bytes() == CONTENT and server.requests == [("w.pth", len(CONTENT))]


def test_another_host_goes_on_where_the_first_ended(server, tmp_path):
    server.files["mirror/w.pth"], server.cut = CONTENT, [300_000]
    download([server.url + "w.pth", server.url + "mirror/w.pth"], str(tmp_path / "w.pth"), DIGITS)
    assert (tmp_path / "w.pth").read_bytes() == CONTENT
    assert server.requests == [("w.pth", 0), ("mirror/w.pth", 300_000)]


def test_a_wrong_hash(server, tmp_path):
    """Also that of a part of another file: all of it is discarded, and the next host begins anew."""
    path, digest = tmp_path / "w.pth", hashlib.sha256(CONTENT).hexdigest()
    message = refused(path, server.url + "w.pth", digits="0" * 8)
    assert f"127.0.0.1: its SHA-256 begins with {digest[:8]}, not with 00000000. Place" in message
    assert os.listdir(tmp_path) == []
    server.files["mirror/w.pth"] = CONTENT
    (tmp_path / "w.pth.part").write_bytes(b"another file")
    download([server.url + "w.pth", server.url + "mirror/w.pth"], str(path), DIGITS)
    assert path.read_bytes() == CONTENT and server.requests[1:] == [("w.pth", 12), ("mirror/w.pth", 0)]


def test_an_absent_network(tmp_path, monkeypatch):
    def without_network(*_, **__):
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    assert "127.0.0.1: <urlopen error [Errno 111] Connection refused>" in refused(
        tmp_path / "w.pth", "http://127.0.0.1:1/w.pth"
    )
    monkeypatch.setattr(socket, "getaddrinfo", without_network)
    message = refused(tmp_path / "w.pth", "https://one.example/w.pth", "https://two.example/w.pth")
    assert all(f"{host}.example: <urlopen error [Errno -3]" in message for host in ("one", "two"))
    assert os.listdir(tmp_path) == []


def test_a_missing_file(server, tmp_path):
    assert "127.0.0.1: HTTP Error 404: Not Found" in refused(tmp_path / "w.pth", server.url + "lost/w.pth")


def test_a_full_disk(server, tmp_path):
    os.symlink("/dev/full", tmp_path / "w.pth.part")  # of which every write fails as on a full disk
    with pytest.raises(OSError, match="No space left on device"):
        download([server.url + "w.pth"], str(tmp_path / "w.pth"), DIGITS)
    assert os.listdir(tmp_path) == []
