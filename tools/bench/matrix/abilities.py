"""What this machine and the installed frameworks cannot run, found out before a matrix starts."""

import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from zoo import program
from zoo.bench.matrix import process
from zoo.bench.matrix.cases import CHECKOUT, Case
from zoo.bench.matrix.dimensions import config_of
from zoo.bench.matrix.process import Limits, StopSignal
from zoo.data.errors import UserError
from zoo.frameworks import prepare
from zoo.models import load_model_class
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode
from zoo.trainer.world import Launch, World

MARK = "abilities: "  # of the line with the answer, among what a framework prints
TIMEOUT = 300.0  # seconds


def impossible(
    cases: Sequence[Case], overrides: Sequence[str], device: str | None, hosts: int, log: Path, stop: StopSignal
) -> dict[Case, str]:
    """Return why cases cannot run here; those that can are left out.

    Args:
        cases: all cases of a matrix.
        overrides: changes of the recipes.
        device: of the command line; None for that of the recipes.
        hosts: number of hosts that can be used.
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
        questions = [_question(case, overrides, device) for case in own]
        answers = _ask(framework, questions, log, stop)
        for case, answer in zip(own, answers, strict=True):
            reason = answer or _too_many_hosts(case, hosts)
            if reason:
                found[case] = reason
    return found


def probe(framework: str, questions: str) -> NoReturn:
    """Answer questions about a framework, JSON both; one framework per process."""
    prepare(framework)
    world_module = importlib.import_module(f"zoo.trainer.{framework}.world")
    worlds: dict[str, World] = {}
    answers: list[str | None] = []
    for question in json.loads(questions):
        device, processes = question["device"], question["processes"]
        try:
            load_model_class(question["model"], framework)
            if device not in worlds:
                worlds[device] = load_backend(framework).start(Launch(), device)
            worlds[device].resolve_mode(Mode(*question["mode"]))
            kind = worlds[device].device.partition(":")[0].partition(" ")[0]
            count = len(os.sched_getaffinity(0)) if kind == "cpu" else world_module._device_count(kind)
            unit = "cores" if kind == "cpu" else f"{kind} devices"
            answers.append(f"{processes} processes for {count} {unit}" if processes > count else None)
        except UserError as error:
            answers.append(str(error))
    print("\n" + MARK + json.dumps(answers), flush=True)
    os._exit(0)  # not every framework ends well where nothing was computed


def _ask(framework: str, questions: Sequence[dict[str, Any]], log: Path, stop: StopSignal) -> list[str | None]:
    """Return the answers of a probe; if it fails, its reason to all questions."""
    words = program.command("bench", "matrix", "--probe", framework, json.dumps(questions))
    failure = process.run(words, log, CHECKOUT, Limits(TIMEOUT), stop)
    if failure:
        return [f"{framework} cannot be used: {failure}"] * len(questions)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return json.loads(next(line for line in lines if line.startswith(MARK)).removeprefix(MARK))


def _question(case: Case, overrides: Sequence[str], device: str | None) -> dict[str, Any]:
    config = config_of(case, overrides)
    train = config.train
    mode = Mode(train.precision, train.amp_level, train.channels_last, train.compile)
    return {
        "model": case.recipe.model,
        "device": device or config.device,
        "processes": case.world.per_host,
        "mode": list(mode),
    }


def _too_many_hosts(case: Case, hosts: int) -> str | None:
    needed = case.world.hosts
    return f"{case.world} needs {needed} hosts, --hosts names {hosts}" if needed > hosts else None
