"""Downloads from a server on this host: hashes, cuts, resumption, several hosts, a full disk."""

import hashlib
import os
import re
import socket
import time
import urllib.request

import pytest

from tests.helpers.server import serving
from zoo.weights import download as module
from zoo.weights.download import NotDownloaded, TransferError, download

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
    download([server.url + "w.pth"], str(tmp_path / "w.pth"), mib=3.0)
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


def test_without_a_hash_nothing_is_joined(server, tmp_path):
    """Two answers could be of two files: each begins anew."""
    server.files["mirror/w.pth"], server.cut = CONTENT[::-1], [300_000]
    (tmp_path / "w.pth.part").write_bytes(CONTENT[:1000])
    download([server.url + "w.pth", server.url + "mirror/w.pth"], str(tmp_path / "w.pth"))
    assert (tmp_path / "w.pth").read_bytes() == CONTENT[::-1]
    assert server.requests == [("w.pth", 0), ("mirror/w.pth", 0)]
    server.cut = [300_000]
    refused(tmp_path / "v.pth", server.url + "w.pth", digits="")
    assert os.listdir(tmp_path) == ["w.pth"]


@pytest.mark.parametrize("mib, problem", [(0.5, "it has more than 0.5 MiB"), (0.8, "it has 0.668 MiB, not 0.8")])
def test_another_size_than_is_published(server, tmp_path, mib, problem):
    with pytest.raises(NotDownloaded, match=problem):
        download([server.url + "w.pth"], str(tmp_path / "w.pth"), DIGITS, mib)
    assert os.listdir(tmp_path) == []
    download([server.url + "w.pth"], str(tmp_path / "w.pth"), DIGITS, 0.668)


def test_a_size_that_is_not_known_is_limited(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    assert "it has more than 0.1 MiB" in refused(tmp_path / "w.pth", server.url + "w.pth")


@pytest.mark.parametrize(
    "location, problem",
    [
        ("ftp://127.0.0.1/w.pth", "it leads to ftp://127.0.0.1, which is not followed from http"),
        ("file:///etc/passwd", "HTTP Error 302: it leads to an address that is not followed"),
        ("http://me:secret@127.0.0.1/w.pth", "it leads to http://127.0.0.1, which is not followed from http"),
    ],
)
def test_redirects_that_are_not_followed(server, tmp_path, location, problem):
    server.redirects["a"] = location
    message = refused(tmp_path / "w.pth", server.url + "a")
    assert problem in message and "secret" not in message


def test_redirects_from_http_and_to_it(server, tmp_path):
    server.redirects["a"] = server.url + "w.pth"
    download([server.url + "a"], str(tmp_path / "w.pth"), DIGITS)
    request = urllib.request.Request("https://host/a")
    for newurl, is_followed in (("https://other/b", True), ("HTTPS://other/b", True), (server.url + "w.pth", False)):
        try:
            made = module._Redirects().redirect_request(request, None, 302, "Found", {}, newurl)
        except TransferError as error:
            assert not is_followed and str(error) == "it leads to http://127.0.0.1, which is not followed from https"
        else:
            assert is_followed and made.full_url == newurl


@pytest.mark.parametrize("is_late_in", ["headers", "body"])
def test_a_server_that_never_ends(server, tmp_path, monkeypatch, is_late_in):
    """Which sends a byte now and then, so that no wait for the next one is long."""
    server.slow = is_late_in
    begin = time.monotonic()
    with pytest.raises(TransferError, match="it takes more than 0.3 s"):
        list(module.chunks(server.url + "w.pth", deadline_s=0.3))
    assert time.monotonic() - begin < 3


@pytest.mark.parametrize(
    "address", ["http://me:secret@127.0.0.1/a", "https://secret@host/a?b", "http://h:po rt/secret"]
)
def test_messages_hold_no_secrets(address):
    with pytest.raises(TransferError) as caught:
        list(module.chunks(address))
    assert "secret" not in str(caught.value)


def test_names_with_blanks_and_umlauts(server):
    server.files["gr%C3%BCn%20a.jpg?b=%20"] = b"image"
    assert list(module.chunks(server.url + "grün a.jpg?b=%20")) == [b"image"]


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
