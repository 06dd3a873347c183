"""Hostile connections during the rendezvous, the secret of a run, and the address of PyTorch's store."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.campaign import network
from tests.helpers.paths import ROOT
from tests.helpers.processes import require_framework
from zoo.data.errors import UserError
from zoo.distributed import wire
from zoo.distributed.rendezvous import candidate_ports, connect, free_port
from zoo.distributed.wire import CODE_SIZE, FILE, RANK, VARIABLE, Channel, ConnectionLost, derive_key, sign
from zoo.trainer.world import Launch

MEETINGS = (*network.ATTACKS, *network.LISTENERS)


@pytest.mark.parametrize("number", range(len(MEETINGS)), ids=MEETINGS)
def test_hostile_connections_do_no_harm(tmp_path: Path, number: int) -> None:
    result = network.trial(number, tmp_path, count=20)
    assert not result.failures


def test_a_stranger_who_is_let_in_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire.hmac, "compare_digest", lambda *_: True)
    assert network.trial(network.KINDS.index("another secret"), tmp_path, count=20).failures


@pytest.mark.slow
def test_hostile_connections_to_a_run_do_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    trial = network.trial(network.KINDS.index("HTTP, while PyTorch trains"), folder)
    assert trial.count > 20 and not trial.failures


def test_the_deadline_holds_under_drips_and_names_strangers() -> None:
    job, stop = f"deadline {os.getpid()}", threading.Event()

    def drip() -> None:
        while not stop.is_set():
            try:
                with socket.create_connection(
                    ("127.0.0.1", candidate_ports(Launch(0, 2, job=job))[0]), 1
                ) as connection:
                    connection.sendall(b"\xff" * 8)
            except OSError:
                time.sleep(0.02)

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    try:
        with pytest.raises(UserError, match=r"did not join .* within 1 s.*connections did not prove the secret"):
            connect(Launch(0, 2, 0, "test", job=job), 60, timeout=1)
    finally:
        stop.set()
        thread.join()
    assert 0.9 < time.monotonic() - began < 5


def test_a_listener_without_the_secret_is_not_taken_for_rank_0() -> None:
    job = f"impostor {os.getpid()}"
    with socket.create_server(("127.0.0.1", candidate_ports(Launch(1, 2, job=job))[0])) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(
                b"\x00\x00\x00\x10" + bytes(16) + b"\x00\x00\x00\x30" + b'{"refused": "go away"}'.ljust(48)
            )

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(UserError, match="cannot reach rank 0"):
            connect(Launch(1, 2, 1, "test", job=job), 60, timeout=0.5)


@pytest.fixture
def relayed():
    """Both channels of a connection, and the sockets of somebody in between."""
    with contextlib.ExitStack() as stack:
        here, near = map(stack.enter_context, socket.socketpair())
        there, far = map(stack.enter_context, socket.socketpair())
        for each in (here, near, there, far):
            each.settimeout(2)
        yield Channel(here, b"key", wire.ROOT), near, far, Channel(there, b"key", RANK)


CHANGES = {
    "changed": lambda first, second: [first[:-1] + b"!"],
    "repeated": lambda first, second: [first, first],
    "left out": lambda first, second: [second],
    "in another order": lambda first, second: [second, first],
    "cut": lambda first, second: [b"\0\0\0\x08" + first[4:12]],
    "without a code": lambda first, second: [b"\0\0\0\x03[1]"],
}


@pytest.mark.parametrize("read", [Channel.receive, Channel.read], ids=["receive", "read"])
@pytest.mark.parametrize("change", CHANGES)
def test_messages_that_a_relay_changes_are_not_taken(relayed, change: str, read) -> None:
    root, near, far, rank = relayed
    root.send(b"[1]")
    root.send(b"[2]")
    size = 4 + CODE_SIZE + 3
    sent = [near.recv(size, socket.MSG_WAITALL) for _ in range(2)]
    far.sendall(b"".join(CHANGES[change](*sent)))
    with pytest.raises(ConnectionLost):
        for _ in range(2):
            assert read(rank) == b"[1]"


def test_messages_are_not_taken_back_or_on_another_connection(relayed) -> None:
    root, near, far, rank = relayed
    root.send(b"[1]")
    message = near.recv(100)
    near.sendall(message)
    with pytest.raises(ConnectionLost):
        root.receive()
    far.sendall(message)
    assert rank.receive() == b"[1]"
    far.sendall(message)
    with pytest.raises(ConnectionLost):
        Channel(rank.socket, b"Key", RANK).receive()


def test_the_key_of_a_connection_comes_from_both_nonces() -> None:
    hello, keys = wire.Hello(1, 2, wire.CONTROL, "x"), []
    for _ in range(2):
        one, other = socket.socketpair()
        with one, other:
            accepted: list[Channel] = []
            end = time.monotonic() + 5
            work = lambda: accepted.append(wire.receive_hello(one, b"key", end)[1])  # noqa: B023, E731
            thread = threading.Thread(target=work)
            thread.start()
            channel = wire.greet(other, b"key", hello, end)
            thread.join()
            assert accepted[0]._key == channel._key
            keys.append(channel._key)
    assert len({*keys, b"key"}) == 3


def test_the_key_depends_on_secret_and_job(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    keys = [derive_key("a", home), derive_key("b", home), derive_key("a", {**home, VARIABLE: "s"})]
    (tmp_path / FILE).write_text("t\n")
    (tmp_path / FILE).chmod(0o600)
    keys += [derive_key("a", home), derive_key("a", {**home, VARIABLE: "t"})]
    assert keys[3] == keys[4] and len(set(keys)) == 4  # the variable counts as much as the file
    assert derive_key("a", {**home, VARIABLE: "s"}) == keys[2]  # and comes before it
    codes = {
        sign(key, label, nonce, b"message") for key in keys[:2] for label in (b"a", b"b") for nonce in (b"n", b"N")
    }
    assert len(codes) == 8


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("t\n")
    (tmp_path / FILE).chmod(0o640)
    with pytest.raises(UserError, match=re.escape(f"`chmod 600 {tmp_path / FILE}`")):
        derive_key("a", {"HOME": str(tmp_path)})


PROGRAM = """
import socket, sys
import psutil
from zoo.trainer.world import Launch
from zoo.trainer.torch.world import start
rank, port = map(int, sys.argv[1:])
world = start(Launch(rank, 2, rank, "test", "127.0.0.2"), "cpu", port)
if rank == 0:
    listening = [c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
    print([address.ip for address in listening if address.port == port])
    for address in ("127.0.0.1", "127.0.0.2"):
        with socket.socket() as stranger:
            print(stranger.connect_ex((address, port)) == 0)
world.close()
"""


@pytest.mark.slow
def test_the_store_listens_at_one_address() -> None:
    require_framework("torch")
    port = free_port("127.0.0.2")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0].splitlines() == ["['127.0.0.2']", "False", "True"]
