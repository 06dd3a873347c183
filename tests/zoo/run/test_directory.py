"""Which folder a run writes to or continues in, and its one writer."""

import errno
import fcntl
import shutil
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from zoo.config.loader import Entry
from zoo.data.errors import UserError
from zoo.run import folder
from zoo.run.folder import LOCK as FILE
from zoo.run.folder import FolderLock, is_run
from zoo.run.recipe import NEWEST, resolve_recipe
from zoo.run.request import Options


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_new_runs_are_numbered_and_the_newest_is_resumed(tmp_path):
    with pytest.raises(UserError, match="there is no run runs/tsm to continue"):
        folder.existing(None, "tsm")
    for expected in ("runs/tsm", "runs/tsm-2", "runs/tsm-3"):
        assert folder.open_folder(None, None, "tsm", "seed: 1\n", FolderLock()) == expected
        assert (tmp_path / expected / "config.yaml").read_text() == "seed: 1\n"
        assert folder.existing(None, "tsm") == expected


def write_events(run, *times):
    run.mkdir(parents=True, exist_ok=True)
    (run / "events.jsonl").write_text("".join(f'{{"event": "train", "step": 1, "time": {time}}}\n' for time in times))


def test_the_newest_run_is_that_with_the_last_event_and_not_the_highest_number(tmp_path):
    for number, time in (("", 30.0), ("-2", 10.0), ("-4", 20.0), ("-10", 5.0), ("-old", 99.0)):
        write_events(tmp_path / f"runs/tsm{number}", 1.0, time)
    (tmp_path / "runs/tsm-11").mkdir()  # nothing has begun there
    assert folder.existing(None, "tsm") == "runs/tsm"
    shutil.rmtree("runs/tsm")
    assert folder.existing(None, "tsm") == "runs/tsm-4"  # although there is no runs/tsm and no runs/tsm-3
    write_events(tmp_path / "runs/tsm-2", 1.0, 40.0)  # resumed
    assert folder.existing(None, "tsm") == "runs/tsm-2"
    write_events(tmp_path / "runs/tsm-3", 50.0)
    with open("runs/tsm-3/events.jsonl", "a") as file:
        file.write('{"event": "begin", "time": 60.0, "speed": {"drop": 1}}\n')
    assert folder.existing(None, "tsm") == "runs/tsm-2"  # of --speed, it cannot go on
    shutil.copytree("runs/tsm-2", "runs/tsm-12")
    assert folder.existing(None, "tsm") == "runs/tsm-12"


@pytest.mark.parametrize("config", ["resnet50_demo", None])
def test_a_mistyped_folder_never_starts_a_run(tmp_path, config):
    write_events(tmp_path / "runs/tsm_demo", 1.0)
    with pytest.raises(UserError) as caught:
        resolve_recipe(Options(config, resume="runs/tsm_dmeo"))
    assert str(caught.value) == (
        "--resume: there is no folder runs/tsm_dmeo (to start one there: -c RECIPE --out runs/tsm_dmeo --resume); did "
        "you mean runs/tsm_demo?"
    )
    with pytest.raises(UserError, match="--resume: runs holds no run"):
        resolve_recipe(Options(config, resume="runs"))
    (tmp_path / "runs/tsm_demo/checkpoints/last").mkdir(parents=True)
    with pytest.raises(UserError, match=r"last/ holds no run .*; did you mean runs/tsm_demo\?"):
        resolve_recipe(Options(config, resume="runs/tsm_demo/checkpoints/last/"))
    request = resolve_recipe(Options("resnet50_demo", out="runs/tsm_dmeo", resume=NEWEST))
    assert (request.resume, request.config.out) == (None, "runs/tsm_dmeo")


def test_a_folder_that_holds_a_run_is_not_used_again(tmp_path):
    (tmp_path / "empty").mkdir()
    folder.require_new("empty")
    folder.open_folder(None, "empty", "tsm", "seed: 1\n", FolderLock())
    with pytest.raises(UserError, match="out: empty holds a run already; continue it with --resume empty"):
        folder.require_new("empty")
    assert folder.open_folder("empty", None, "tsm", "seed: 2\n", FolderLock()) == "empty"
    assert {path.name for path in (tmp_path / "empty").iterdir()} == {"config.yaml", FILE}
    with pytest.raises(UserError, match="--resume: there is no folder nowhere"):
        folder.existing("nowhere", "tsm")


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="out: cannot write to file/run"):
        folder.open_folder(None, "file/run", "tsm", "seed: 1\n", FolderLock())


def entries(**values):
    return {key.replace("__", "."): Entry(value, "recipe.yaml:1") for key, value in values.items()}


def test_what_may_change_between_a_run_and_its_resume():
    old = entries(model__depth=50, data__root="/a", optim__lr=0.1, out="x", seed=1)
    new = {**old, **entries(data__root="/b", optim__lr=0.2, out="y", data__names="/b/names.txt")}
    assert folder.check_same(old, old) == []
    changed = ["data.names: None -> /b/names.txt", "data.root: /a -> /b", "optim.lr: 0.1 -> 0.2"]
    assert folder.check_same(old, new) == changed  # contents of files are compared with the record of the data
    for changed in (entries(model__depth=18), entries(seed=2), entries(data__name="other"), entries(data__size=64)):
        with pytest.raises(UserError, match="this is not the same run any more"):
            folder.check_same(old, {**old, **changed})


HOLD = "import sys; from zoo.run.folder import FolderLock; lock = FolderLock(); lock.acquire(sys.argv[1]); "


def test_a_second_writer_is_refused_until_the_first_is_killed(tmp_path):
    words = [sys.executable, "-c", HOLD + "print('held', flush=True); input()", str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"is being written by process {holder.pid} on "):
            FolderLock().acquire(str(tmp_path))
        holder.kill()
    lock = FolderLock()
    lock.acquire(str(tmp_path))
    lock.acquire(str(tmp_path))  # of its own
    with pytest.raises(UserError):
        FolderLock().acquire(str(tmp_path))
    lock.release()
    FolderLock().acquire(str(tmp_path))
    assert (tmp_path / FILE).exists() and not is_run(str(tmp_path))  # the lock alone makes no run


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = FolderLock()
    if number == errno.EIO:
        with pytest.raises(UserError, match="cannot write to .*: refused"):
            lock.acquire(str(tmp_path))
    else:
        lock.acquire(str(tmp_path))
        lock.release()
