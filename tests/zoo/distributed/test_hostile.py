"""Hostile connections during the rendezvous, the secret of a run, and the address of PyTorch's store."""

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
from zoo.distributed.wire import FILE, VARIABLE, derive_key, sign
from zoo.trainer.world import Launch


@pytest.mark.parametrize("number", range(len(network.ATTACKS)), ids=network.ATTACKS)
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


def test_the_key_depends_on_secret_and_job(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    keys = [derive_key("a", home), derive_key("b", home), derive_key("a", {**home, VARIABLE: "s"})]
    (tmp_path / FILE).write_text("t\n")
    (tmp_path / FILE).chmod(0o600)
    keys += [derive_key("a", home), derive_key("a", {**home, VARIABLE: "t"})]
    assert keys[3] == keys[4] and len(set(keys)) == 4  # the variable counts as much as the file
    assert derive_key("a", {**home, VARIABLE: "s"}) == keys[2]  # and comes before it
    codes = {sign(key, nonce, b"message") for key in keys[:2] for nonce in (b"nonce", b"Nonce")}
    assert len(codes) == 4


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
