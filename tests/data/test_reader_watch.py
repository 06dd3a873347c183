"""What is told of a reading process that died."""

import signal

import pytest

from zoo.data import reader_board, reader_watch, shared_memory


@pytest.mark.parametrize(
    "code, words",
    [
        (
            -signal.SIGKILL,
            "(SIGKILL) while it read a.mp4 and b.mp4, as the kernel does when memory runs out",
        ),
        (-signal.SIGBUS, "(SIGBUS) while it read a.mp4 and b.mp4, as the kernel does when /dev/shm is full"),
        (
            -signal.SIGSEGV,
            "while it read a.mp4 and b.mp4, perhaps by a file that crashes its decoder: python",
        ),
        (3, "exited with code 3 while it read a.mp4 and b.mp4; its output above has the cause"),
    ],
)
def test_the_exit_code_tells_the_cause(code, words):
    assert words in reader_watch.cause(code, ["a.mp4", "b.mp4"])
    assert "read a" not in reader_watch.cause(code, [])


def test_grains_error_is_explained_and_others_are_not():
    watch = reader_watch.ReaderWatch(shared_memory.claim(), 123456, None)
    try:
        error = RuntimeError("Worker process was terminated unexpectedly with exit code -9. Search the logs above")
        assert "was killed (SIGKILL), as the kernel" in str(watch.explain(error))
        assert watch.explain(RuntimeError("CUDA error")) is None
    finally:
        watch.close()


def test_a_board_has_the_samples_that_were_begun_and_not_finished(monkeypatch):
    monkeypatch.setattr(reader_board, "_memory", None)
    monkeypatch.setattr(reader_board, "_slot", reader_board._Slot())
    asked = []
    reader_board.begin(asked.append, 1)  # of a process that is no reader
    assert not asked
    token = shared_memory.claim()
    reader_board.open_board(token, 98765)
    (process,) = reader_board.processes(token, 98765)
    for name in ("first.mp4", "ж" * 200, "caf\udce9.mp4"):
        reader_board.begin(lambda index, name=name: name, 0)
        (shown,) = reader_board.read(token, 98765, process)
        assert name.startswith(shown.rstrip("\ufffd")) or shown == "caf\ufffd.mp4"
    reader_board.end()
    assert reader_board.read(token, 98765, process) == [] == reader_board.read(token, 98765, process + 1)
    reader_board._memory.close()
    shared_memory.discard(token, process)
    assert not reader_board.processes(token, 98765)
