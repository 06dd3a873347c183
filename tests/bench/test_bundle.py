"""`zoo publish` and `zoo verify`: what changed in a bundle is found, and a bundle is read as the runs that it is of."""

import json
import random
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.journals import write_journal
from tests.helpers.report_runs import speed_events
from tests.helpers.speed_runs import FakeRuns
from tests.helpers.submissions import events, recipe_text, write_run
from zoo import cli
from zoo.bench import bundle, consistency, statistics
from zoo.bench.matrix import process, rounds
from zoo.bench.matrix.process import Load
from zoo.config import loader
from zoo.data import extras
from zoo.logs import airank, journal
from zoo.run.description import recipe_digest
from zoo.weights.files import sha256


def complete(folder):
    """Give a run that never took place what a run writes beside its journal."""
    path, found = folder / "config.yaml", journal.history(str(folder))
    if not path.exists():
        framework = next(event["framework"] for event in found if event["event"] == "begin")
        changes = (f"framework={framework}",)
        path.write_text(recipe_text("configs/tsm_demo.yaml", changes, folder), encoding="utf-8")
    recipe = loader.read(str(path))
    for event in found:
        if event["event"] == "begin":
            event |= {field: recipe[key].value for field, key in consistency.OF_RECIPE.items()}
            event["global_batch"] = event["ranks"] * event["batch"] * event["accumulate"]
            event["recipe_sha256"] = recipe_digest(recipe, event["weights"])
            begin = event
        if event["event"] == "train":
            event["epoch"] = event["step"] * begin["global_batch"] / begin["train_samples"]
    write_journal(folder, found)
    airank.Writer(str(folder), begin["target"], begin["warmup_epochs"])


@pytest.fixture
def run(tmp_path):
    folder = Path(write_run(tmp_path / "tsm", events(1)))
    complete(folder)
    (folder / "checkpoints/step-00002000").mkdir(parents=True)
    (folder / "checkpoints/step-00002000/model.safetensors").write_bytes(b"weights")
    (folder / "checkpoints/best").symlink_to("step-00002000")
    return folder


@pytest.fixture
def packed(run, tmp_path, capsys):
    path = tmp_path / "tsm.zip"
    assert cli.main(["publish", str(run), "--out", str(path)]) == 0
    assert cli.main(["verify", str(path)]) == 0
    assert "1 runs, every number follows" in capsys.readouterr().out
    return path


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def verify(path, content=None):
    if content is not None:
        path.write_bytes(content)
    return cli.main(["verify", str(path)])


def test_what_a_bundle_has(packed, run, tmp_path):
    files = contents(packed)
    manifest = json.loads(files["bundle.json"])
    assert [name for name in files if name != "bundle.json"] == sorted(manifest["files"])
    assert sorted(manifest["files"]) == ["tsm/airank.log", "tsm/config.yaml", "tsm/events.jsonl"]
    assert files["tsm/events.jsonl"] == (run / "events.jsonl").read_bytes()
    assert manifest["weights"]["tsm"] == {"step-00002000": sha256(str(run / "checkpoints/best/model.safetensors"))}
    stated = manifest["runs"]["tsm"]
    assert stated["protocol"] == "k400/8x1x1@224" and stated["values"]["best"] == 0.7123
    assert bundle.pack(str(run), "CC-BY-4.0") == packed.read_bytes()  # the same files make the same bytes


def test_changed_bytes_are_found(packed):
    content, rng = packed.read_bytes(), random.Random(0)
    for _ in range(200):
        place = rng.randrange(len(content))
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        assert verify(packed, bytes(changed)) == 1, place


def test_changed_lines_files_and_orders_are_found(packed, capsys):
    files = contents(packed)
    names, lines = list(files), files["tsm/events.jsonl"].splitlines(True)
    changes = {
        "a line less": {**files, "tsm/events.jsonl": b"".join(lines[:-1])},
        "two lines in turn": {**files, "tsm/events.jsonl": b"".join([*lines[:2], lines[3], lines[2], *lines[4:]])},
        "a file less": {name: files[name] for name in names if name != "tsm/airank.log"},
        "a file more": {**files, "tsm/notes.txt": b""},
        "another order": {name: files[name] for name in [names[0], *reversed(names[1:])]},
        "a path that leaves": {**files, "../x": b""},
        "no manifest": {name: files[name] for name in names[1:]},
    }
    for what, changed in changes.items():
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in changed.items():
                archive.writestr(zipfile.ZipInfo(name, bundle.DATE), content)
        assert verify(packed) == 1, what
    assert not (packed.parent / "x").exists()
    assert verify(packed, b"no archive") == 1 and verify(packed, b"") == 1
    assert "is no bundle" in capsys.readouterr().out


def repacked(files):
    """Return a bundle with new hashes, as a forger would make it."""
    manifest = json.loads(files.pop("bundle.json"))
    del manifest["sha256"]
    manifest["files"] = {name: [len(content), bundle._sha256(content)] for name, content in sorted(files.items())}
    return bundle._archive({**manifest, "sha256": bundle._sha256(bundle._canonical(manifest))}, files)


@pytest.mark.parametrize(
    "name, old, new, what",
    [
        ("bundle.json", b"0.7123", b"0.7923", "values is stated"),
        ("bundle.json", b"2.13.0", b"2.14.0", "framework_version is stated"),
        ("tsm/events.jsonl", b"0.7123", b"0.7923", "airank.log: not what follows"),
        ("tsm/airank.log", b"0.71230000", b"0.79230000", "airank.log: not what follows"),
        ("tsm/config.yaml", b"lr: 0.0", b"lr: 0.1", "config.yaml: not the recipe"),
        ("tsm/events.jsonl", b'"event": "end", "time": 17', b'"event": "end", "time": 16', "time goes back"),
    ],
)
def test_numbers_that_do_not_follow_are_found_behind_new_hashes(packed, capsys, name, old, new, what):
    files = contents(packed)
    assert verify(packed, repacked(dict(files))) == 0
    assert files[name].count(old) >= 1
    assert verify(packed, repacked({**files, name: files[name].replace(old, new)})) == 1
    assert what in capsys.readouterr().out


def changed_event(files, name, **changes):
    """Return the files of a bundle in which an event has other values, its log written again."""
    lines = [json.loads(line) for line in files["tsm/events.jsonl"].splitlines()]
    for event in lines:
        if event["event"] == name:
            event |= changes
    begin = next(event for event in lines if event["event"] == "begin")
    log = "".join(f"{line}\n" for line in airank.lines(lines, begin["target"], begin["warmup_epochs"]))
    journal_text = "".join(f"{json.dumps(event)}\n" for event in lines)
    return {**files, "tsm/events.jsonl": journal_text.encode(), "tsm/airank.log": log.encode()}


@pytest.mark.parametrize(
    "name, changes, what",
    [
        ("begin", {"batch": 999}, "batch is 999"),
        ("begin", {"ranks": 8}, "the global batch is not"),
        ("begin", {"framework": "jax"}, "framework is jax"),
        ("begin", {"framework": []}, "framework is []"),
        ("begin", {"seed": 7}, "seed is 7"),
        ("begin", {"precision": 5}, "precision is 5"),
        ("begin", {"ranks": "x"}, "the global batch is not"),
        ("begin", {"flops_per_sample": 10**400}, "a number that nothing can measure"),
        ("eval", {"accuracy": 12.5, "top1": 12.5}, "no fraction"),
        ("eval", {"iou": {"road": 0.5, "sky": None, "car": 0.1}, "miou": 0.4}, "not the mean of the classes"),
    ],
)
def test_events_that_contradict_one_another_are_found_behind_new_hashes(packed, capsys, name, changes, what):
    assert verify(packed, repacked(changed_event(contents(packed), name, **changes))) == 1
    assert what in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes, what",
    [
        ({}, []),
        ({"seconds": 1.0, "samples_per_s": 1280.0}, ["the updates take longer"]),
        ({"samples": 640}, ["samples"]),
    ],
)
def test_a_speed_is_that_of_all_updates(changes, what):
    (*_, begin, speed, _) = speed_events(128.0, count=10)
    found = list(consistency._of_speed({**speed, **changes}, begin))
    assert len(found) >= len(what) and all(words in " ".join(found) for words in what) and bool(found) == bool(what)


@pytest.mark.parametrize(
    "key, value",
    [
        ("weights", {"tsm": {"step-00002000": None}}),
        ("weights", {"x": {"best": "0" * 64}}),
        ("runs", None),
        ("more", 1),
    ],
)
def test_what_a_manifest_states_is_checked(packed, key, value):
    files = contents(packed)
    manifest = json.loads(files.pop("bundle.json"))
    manifest |= {key: value}
    assert verify(packed, repacked({**files, "bundle.json": json.dumps(manifest).encode()})) == 1


def test_control_characters_of_a_bundle_reach_no_terminal(packed, capsys):
    assert verify(packed, repacked({**contents(packed), "tsm/\x1b[2J": b"1"})) == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes",
    [
        {"tsm/events.jsonl": b'{"event": "begin", "time": 1.0}\n'},
        {"tsm/events.jsonl": b""},
        {"tsm": b"a folder elsewhere"},
        {"tsm/config.yaml": b"- 1"},
        {"bundle.json": b'{"format": 1, "sha256": "", "runs": []}'},
        {"bundle.json": b"[]"},
    ],
)
def test_damaged_records_are_named_without_a_traceback(packed, capsys, changes):
    files = {**contents(packed), **changes}
    is_manifest = "bundle.json" in changes
    if is_manifest:
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name, bundle.DATE), content)
    assert verify(packed, None if is_manifest else repacked(files)) == 1
    assert capsys.readouterr().out.splitlines()[-1]


def test_records_that_contradict_one_another_are_not_published(run, tmp_path, capsys):
    with open(run / "airank.log", "a") as file:
        file.write("AI-Rank-log 1700009999.0 eval_accuracy:0.99\n")
    assert cli.main(["publish", str(run), "--out", str(tmp_path / "x.zip")]) == 2
    assert (
        "airank.log: not what follows from events.jsonl" in capsys.readouterr().err
        and not (tmp_path / "x.zip").exists()
    )


def test_a_run_that_goes_on_is_published_as_it_was_read(run, tmp_path, monkeypatch):
    contradictions, path = consistency.contradictions, run / journal.FILE
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-2]), encoding="utf-8")
    (run / airank.FILE).unlink()  # which is of the whole run

    def later(*arguments):
        path.write_text("".join(lines), encoding="utf-8")
        return contradictions(*arguments)

    monkeypatch.setattr(consistency, "contradictions", later)
    assert cli.main(["publish", str(run), "--out", str(tmp_path / "early.zip")]) == 0
    monkeypatch.setattr(consistency, "contradictions", contradictions)
    assert path.read_text(encoding="utf-8") == "".join(lines) and verify(tmp_path / "early.zip") == 0


@pytest.mark.parametrize(
    "words, what", [(("{}/none",), "no run in it"), (("{}/tsm", "--out", "{}"), "this file exists")]
)
def test_mistakes_of_publish(run, tmp_path, capsys, words, what):
    assert cli.main(["publish", *(word.format(tmp_path) for word in words)]) == 2
    assert what in capsys.readouterr().err
    assert cli.main(["verify", str(tmp_path / "none.zip")]) == 2


def test_bundles_are_reported_and_protocols_are_not_mixed(packed, tmp_path, capsys):
    assert cli.main(["report", str(packed)]) == 0
    assert "tsm.zip/tsm" in capsys.readouterr().out
    other = Path(write_run(tmp_path / "other", events(1, changes={"protocol": "motion/8x1x1@32"})))
    complete(other)
    assert cli.main(["publish", str(other), "--out", str(tmp_path / "other.zip")]) == 0
    assert cli.main(["report", str(packed), str(tmp_path / "other.zip")]) == 2
    assert "different protocols" in capsys.readouterr().err
    copy = packed.rename(tmp_path / "copy.bundle")
    assert cli.main(["report", str(copy), str(tmp_path / "tsm")]) == 0  # the same run, which counts once
    assert capsys.readouterr().out.count("complete") == 1
    assert verify(copy, copy.read_bytes() + b" ") == 1
    assert cli.main(["report", str(copy)]) == 2  # whatever its name


@pytest.mark.slow
def test_a_matrix(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rounds.process, "run", fake := FakeRuns())
    monkeypatch.setattr(extras, "is_installed", lambda package: True)
    monkeypatch.setattr(process, "measure_load", lambda: Load(0.0))
    fake.speed = lambda folder, request, ranks: 100.0 + len(fake.started)
    words = ["-c", "tsm_demo", "--frameworks", "torch,paddle", "-n", "5", "--out", str(tmp_path / "m")]
    assert cli.main(["bench", "matrix", *words]) == 0
    for path in (tmp_path / "m").rglob("events.jsonl"):
        complete(path.parent)
    path = tmp_path / "m.zip"
    assert cli.main(["publish", str(tmp_path / "m"), "--out", str(path)]) == 0 and verify(path) == 0
    assert "10 runs" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(extras, "is_installed", lambda package: package != "scipy")
        patch.setattr(statistics, "stats", extras.Deferred("scipy.stats"))
        for name in ("scipy", "scipy.stats"):
            patch.setitem(sys.modules, name, None)
        assert cli.main(["verify", str(path)]) == 2  # where the bundle is right, and this machine lacks a package
    assert "scipy is not installed here: pip install" in capsys.readouterr().err
    files = contents(path)
    cases = json.loads(files["m/results.json"])["cases"]
    for key in ("median", "low", "cv"):
        changed = files["m/results.json"].replace(str(cases[0][key]).encode(), str(cases[0][key] * 1.01).encode())
        assert verify(path, repacked({**files, "m/results.json": changed})) == 1
        assert f"{key} of tsm_demo" in capsys.readouterr().out
    assert cli.main(["publish", str(tmp_path / "m/torch"), "--out", str(tmp_path / "part.zip")]) == 2
    assert "is a part of" in capsys.readouterr().err  # which would lose what says that the machine was busy


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda found: found.update(runs_on_a_busy_machine=1), "runs_on_a_busy_machine is 1"),
        (lambda found: found["cases"][0].update(framework="jax"), "framework is jax"),
        (lambda found: found["cases"][0]["runs"].pop(), "is complete, and no run of a case"),
        (lambda found: found["cases"].pop(), "is complete, and no run of a case"),
        (lambda found: found["cases"][0].update(reason="none"), "results.csv is not the table"),
    ],
)
def test_results_of_a_matrix_that_its_runs_contradict(tmp_path, monkeypatch, change, what):
    monkeypatch.setattr(rounds.process, "run", FakeRuns())
    monkeypatch.setattr(extras, "is_installed", lambda package: True)
    monkeypatch.setattr(process, "measure_load", lambda: Load(0.0))
    words = ["-c", "tsm_demo", "--frameworks", "torch,paddle", "-n", "2", "--out", str(tmp_path / "m")]
    assert cli.main(["bench", "matrix", *words]) == 0
    for path in (tmp_path / "m").rglob("events.jsonl"):
        complete(path.parent)
    results, names = tmp_path / "m/results.json", ["results.json"]
    assert consistency.contradictions(tmp_path / "m", names) == []
    content = json.loads(results.read_text())
    change(content)
    results.write_text(json.dumps(content))
    assert any(what in problem for problem in consistency.contradictions(tmp_path / "m", names))
