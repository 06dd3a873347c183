"""Power cuts: a tiny run goes on from what would be left of its folder, and ends like an undisturbed one.

Every checkpoint that was saved completely has to be there and whole, and the journal has to be readable.
"""

import dataclasses
import json
import random
import shutil
from pathlib import Path

from tests.campaign import Trial, tiny
from tests.campaign.cut_at import COUNT, MODES, REQUIRED, Plan
from tests.campaign.tiny import Setup, differences
from tests.helpers.paths import ROOT
from zoo.data.errors import UserError
from zoo.logs import journal
from zoo.run import checkpoint

KINDS = MODES
CUTS = 10  # of a trial
SETUP = Setup("torch")  # what writes files is the same code in all frameworks
PROGRAM = ("-m", "tests.campaign.cut_at")


def trial(number: int, folder: Path, cuts: int = CUTS, fault: str = "", resumes: bool = True) -> Trial:
    """Cut the power at random moments of a run, and go on from each.

    Args:
        number: of the trial; in half of them, the run that is cut is itself a resumed one.
        folder: for the runs; what the trials share is kept beside it.
        cuts: the number of power cuts.
        fault: Python statement that plants a fault in the run that is cut.
        resumes: whether to go on from what is left; otherwise it is only looked at.
    """
    rng, kept, mode = random.Random(number), folder.parent, KINDS[number % len(KINDS)]
    undisturbed = tiny.reference(SETUP, kept)
    changes = _count_changes(kept)
    root, out = folder / "root", folder / "cuts"
    root.mkdir()
    out.mkdir()
    if number // len(KINDS) % 2:
        changes //= 2  # as many as half of a run has at least
        steps = tiny.EVAL_EVERY * rng.randint(1, tiny.STEPS // 2 // tiny.EVAL_EVERY)  # the last step is evaluated
        _train(root / "run", kept, ["--max-steps", str(steps)])
    plan = Plan(str(root), str(out), rng.sample(range(changes), cuts), mode, fault)
    _train(root / "run", kept, [], [*PROGRAM, json.dumps(dataclasses.asdict(plan))])
    failures, made = [], sorted(path for path in out.iterdir() if path.is_dir())
    for cut in made:
        found = _look(cut)
        if resumes and not found:
            found = _go_on(cut / "left" / "run", kept, undisturbed.folder)
        failures += [f"trial {number} ({mode}), cut before change {cut.name}: {line}" for line in found]
    if failures and resumes:
        tiny.keep(folder, number)
    return Trial(mode, len(made), failures, {})


def _look(cut: Path) -> list[str]:
    """Return what is wrong with what a power cut left, before the run goes on. Damaged checkpoints are wrong, too."""
    run, required = str(cut / "left" / "run"), json.loads((cut / REQUIRED).read_text())
    found = []
    try:
        journal.check(run)
    except UserError as error:
        found.append(str(error))
    step = 0
    for path in sorted(Path(run).glob("checkpoints/step-*")):
        try:
            checkpoint.check_whole(str(path))
            step = checkpoint.load_record(str(path))["step"]
        except UserError as error:
            found.append(str(error))
    logged = {event["step"] for event in journal.history(run) if event["event"] == "train"}
    if missing := set(range(1, step + 1)) - logged:
        found.append(f"the losses of steps {sorted(missing)} are lost, but the checkpoint of step {step} is there")
    if step < required:
        found.append(f"the newest whole checkpoint is that of step {step}, but step {required} had been saved")
    return found


def _go_on(run: Path, kept: Path, undisturbed: Path) -> list[str]:
    """Resume a run until its end; return what differs from an undisturbed one."""
    try:
        _train(run, kept, [])
    except RuntimeError as error:
        return [str(error)]
    return differences(run, undisturbed)


def _train(run: Path, kept: Path, words: list[str], program: list[str] | None = None) -> None:
    """Start or resume a run. Raises RuntimeError if it fails."""
    has_begun = (run / "config.yaml").exists()
    where = ["--resume", str(run)] if has_begun else [*tiny.arguments(SETUP, kept), "--out", str(run), "--resume"]
    words = [*(program or [str(ROOT / "train.py")]), *where, *words]
    code, text = tiny.finish(tiny.start(SETUP, words, kept))
    if code != 0:
        raise RuntimeError(f"exit code {code}: {text}")


def _count_changes(kept: Path) -> int:
    """Return the number of changes of files in a run, which is counted once."""
    path = kept / "changes"
    if not (path / COUNT).exists():
        shutil.rmtree(path, ignore_errors=True)
        (path / "root").mkdir(parents=True)
        plan = Plan(str(path / "root"), str(path), [], KINDS[0])
        _train(path / "root" / "run", kept, [], [*PROGRAM, json.dumps(dataclasses.asdict(plan))])
    return int(json.loads((path / COUNT).read_text()))
