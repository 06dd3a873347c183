"""Processes of the sides, and requests to them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoo import program
from zoo.data.errors import UserError
from zoo.parity.side import Side

# The package alone is found, and not what is installed beside it, which another interpreter has in other versions.
START = """
import importlib.util, sys
place = sys.argv[1]
spec = importlib.util.spec_from_file_location("zoo", place + "/__init__.py", submodule_search_locations=[place])
sys.modules["zoo"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from zoo.parity import worker
worker.main(sys.argv[2:])
"""
MAX_LOG_LINES = 8  # of a side that failed


class Session:
    """The process of a side. Its output goes to a file in its folder."""

    def __init__(self, side: Side, folder: Path):
        self.side, self.folder = side, folder
        folder.mkdir(parents=True)
        package = str(program.PACKAGE)
        answers, end = os.pipe()
        words = [side.python or sys.executable, "-c", START, package, str(end), json.dumps(side._asdict()), str(folder)]
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            try:
                self.process = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, pass_fds=(end,), text=True
                )
            except OSError as error:
                raise UserError(f"--python {side.title}={side.python}: cannot be started: {error.strerror}") from None
        os.close(end)
        self.answers = os.fdopen(answers)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            UserError: the side failed, with what it printed.
        """
        self.send(request)
        return self.receive()

    def send(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # `receive` says why

    def receive(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            code = self.process.wait()
            tail = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
            raise UserError("\n  ".join([f"{self.side.title}: its process ended with {code}", *tail[-MAX_LOG_LINES:]]))
        answer = json.loads(line)
        if "error" in answer:
            raise UserError("\n  ".join([f"{self.side.title}: {answer['error']}", *answer.get("traceback", ())]))
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # of a request that the process did not live to read
            self.process.stdin.close()
        self.answers.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
