"""What this machine and the installed frameworks cannot run, found out before a matrix starts."""

import argparse
import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from zoo import program
from zoo.bench.matrix import process
from zoo.bench.matrix.cases import CHECKOUT, Case, config_of
from zoo.bench.matrix.process import StopSignal
from zoo.data.errors import UserError
from zoo.frameworks import prepare
from zoo.models import load_model_class
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode
from zoo.trainer.world import Launch

MARK = "abilities: "  # of the line with the answer, among what a framework prints
TIMEOUT = 300.0  # seconds


def impossible(cases: Sequence[Case], arguments: argparse.Namespace, log: Path, stop: StopSignal) -> dict[Case, str]:
    """Return why cases cannot run here; those that can are left out.

    Args:
        cases: all cases of a matrix.
        arguments: of the command line.
        log: receives what the frameworks print.
        stop: ends the probes.
    """
    found: dict[Case, str] = {}
    for framework in dict.fromkeys(case.framework for case in cases):
        own = [case for case in cases if case.framework == framework]
        if importlib.util.find_spec(framework) is None:
            missing = f"{framework} is not installed here: pip install 'vision-zoo[{framework}]'"
            found.update(dict.fromkeys(own, missing))
            continue
        answers = _ask(framework, [_question(case, arguments) for case in own], log, stop)
        found.update({case: answer for case, answer in zip(own, answers, strict=True) if answer})
    hosts = max(1, len(arguments.hosts))
    for case in cases:
        if case.world.hosts > hosts:
            found.setdefault(case, f"{case.world} needs {case.world.hosts} hosts, --hosts names {hosts}")
    return found


def probe(framework: str, questions: str) -> NoReturn:
    """Answer questions about a framework, JSON both; one framework per process."""
    prepare(framework)
    answers = []
    for question in json.loads(questions):
        try:
            load_model_class(question["model"], framework)
            world = load_backend(framework).start(Launch(), question["device"])
            world.resolve_mode(Mode(*question["mode"]))
            kind = world.device.partition(":")[0].partition(" ")[0]
            devices = importlib.import_module(f"zoo.trainer.{framework}.world")._device_count
            count = len(os.sched_getaffinity(0)) if kind == "cpu" else devices(kind)
            problem = f"{question['processes']} processes for {count} {'cores' if kind == 'cpu' else f'{kind} devices'}"
            answers.append(problem if question["processes"] > count else None)
        except UserError as error:
            answers.append(str(error))
    print("\n" + MARK + json.dumps(answers), flush=True)
    os._exit(0)  # not every framework ends well where nothing was computed


def _ask(framework: str, questions: Sequence[dict[str, Any]], log: Path, stop: StopSignal) -> list[str | None]:
    """Return the answers of a probe; if it fails, its reason to all questions."""
    words = program.command("bench", "matrix", "--probe", framework, json.dumps(questions))
    failure = process.run(words, log, CHECKOUT, TIMEOUT, stop)
    if failure:
        return [f"{framework} cannot be used: {failure}"] * len(questions)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return json.loads(next(line for line in lines if line.startswith(MARK)).removeprefix(MARK))


def _question(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    config = config_of(case, arguments.override)
    train = config.train
    return {
        "model": case.recipe.model,
        "device": arguments.device or config.device,
        "processes": case.world.cards,
        "mode": [train.precision, train.amp_level, train.channels_last, train.compile],
    }
