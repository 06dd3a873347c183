"""Check of a tree: a good one is accepted, and every single omission or wrong value is refused by name."""

import json
import random
import re

import pytest

from tests.helpers.paths import ROOT
from zoo.bench.submission.check import check
from zoo.bench.submission.summary import rows
from zoo.data.errors import UserError

MODEL = "ACME/linux/tsm"
LOG = f"{MODEL}/log/GPUx8.log"
SECTIONS = (
    "Download",
    "Preprocessing and postprocessing",
    "Splits and order",
    "Initialization",
    "Structure and differences to the reference",
    "Optimizer",
    "Loss",
    "Evaluation method and frequency",
    "Environment",
    "Preparation and checks",
    "Training commands",
)


def test_a_good_tree(good_tree):
    result = check(str(good_tree))
    assert (result.problems, result.notes, result.logs) == ([], [], 3)


def replaced(path, old, new, count=1):
    """Return a change of a tree: a text in a file."""

    def change(tree):
        text = (tree / path).read_text(encoding="utf-8")
        assert old in text
        (tree / path).write_text(text.replace(old, new, count), encoding="utf-8")

    return change


def without_line(path, words):
    """Return a change of a tree: the first line with these words is removed."""

    def change(tree):
        lines = (tree / path).read_text(encoding="utf-8").splitlines(True)
        lines.remove(next(line for line in lines if words in line))
        (tree / path).write_text("".join(lines), encoding="utf-8")

    return change


def removed(path):
    def change(tree):
        target = tree / path
        if target.is_dir():
            for file in sorted(target.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            target.rmdir()
        else:
            target.unlink()

    return change


def renamed(old, new):
    return lambda tree: (tree / old).rename(tree / new)


def field(name, value):
    """Return a change of a tree: a field of system_information.json; None removes it."""

    def change(tree):
        path = tree / "ACME/linux/system_information.json"
        fields = json.loads(path.read_text())
        fields.pop(name)
        path.write_text(json.dumps(fields if value is None else {**fields, name: value}))

    return change


def copied(source, to):
    """Return a change of a tree: a log becomes a copy of another."""
    return lambda tree: (tree / MODEL / "log" / to).write_bytes((tree / MODEL / "log" / source).read_bytes())


few = field("accelerators_per_node", 4)
SYSTEM, CODE, DATA = "ACME/linux/system_information.json", f"{MODEL}/code/README.md", f"{MODEL}/data/README.md"
MUTATIONS = {
    "no system_information.json": (removed(SYSTEM), "system_information.json is missing"),
    "no JSON": (replaced(SYSTEM, "{", ""), "system_information.json: is not JSON"),
    "no object": (lambda tree: (tree / SYSTEM).write_text('[["submitter"]]'), "is not a JSON object"),
    "field missing": (field("software_stack", None), "field software_stack is missing"),
    "wrong type": (field("number_of_nodes", "4"), 'field number_of_nodes must be an integer, not "4"'),
    "fraction of a core": (field("host_processor_core_count", 20.5), "must be an integer"),
    "placeholder": (field("hardware_name", "xxx"), "which says nothing"),
    "unknown system": (renamed("ACME/linux", "ACME/gpu"), "named linux or windows, not gpu"),
    "unlisted model": (renamed(MODEL, "ACME/linux/arcface"), "AI-Rank lists no model of the name arcface"),
    "no model": (removed(MODEL), "ACME/linux: no folder of a model"),
    "no system": (removed("ACME/linux"), "no folder submitter/system"),
    "no code": (removed(f"{MODEL}/code"), f"{MODEL}/code: the folder is missing"),
    "no README": (removed(CODE), "code/README.md: is missing"),
    "no data": (removed(f"{MODEL}/data"), f"{MODEL}/data: the folder is missing"),
    "no data note": (removed(DATA), f"{MODEL}/data: no note with the checksum"),
    "no checksum in the note": (without_line(DATA, "- checksum:"), "no note with the checksum"),
    "other checksum in the note": (replaced(DATA, "37724b", "aaaaaa"), "is not that of the data note"),
    "other samples in the note": (replaced(DATA, "samples: 234619", "samples: 240000"), "avg_ips is"),
    "other data in the note": (replaced(DATA, "samples: 234619", "samples: 1000"), "1000 training"),
    "no log folder": (removed(f"{MODEL}/log"), f"{MODEL}/log: the folder is missing"),
    "wrong name": (renamed(LOG, f"{MODEL}/log/gpu8.log"), "gpu8.log: not named GPUx"),
    "name with a tail": (renamed(LOG, f"{MODEL}/log/GPUx8_AMP.log"), "must be named GPUx8.log"),
    "small letters": (renamed(LOG, f"{MODEL}/log/gpux8.log"), "must be named GPUx8.log"),
    "unknown scale": (renamed(LOG, f"{MODEL}/log/GPUx4.log"), "the rules know logs of 1, 8, 32 cards"),
    "empty log": (lambda tree: (tree / LOG).write_text(""), "GPUx8.log: no event of the rules"),
    "log of noise": (lambda tree: (tree / LOG).write_bytes(bytes(range(256)) * 99), "GPUx8.log: no event of the rules"),
    "no load_data": (without_line(LOG, "load_data"), "GPUx8.log: no load_data"),
    "no test_begin": (without_line(LOG, "test_begin"), "GPUx8.log: no test_begin"),
    "no evaluation": (without_line(LOG, "cnt:2"), "does not go 1, 2, 3"),
    "no target_quality_time": (without_line(LOG, "target_quality_time"), "GPUx8.log: no target_quality_time"),
    "no test_finish": (without_line(LOG, "test_finish"), "GPUx8.log: no test_finish"),
    "no total_use_time": (without_line(LOG, "total_use_time"), "GPUx8.log: no total_use_time"),
    "no avg_ips": (without_line(LOG, "avg_ips"), "GPUx8.log: no avg_ips"),
    "other target_quality_time": (replaced(LOG, "2000.000000sec", "1900.000000sec"), "target_quality_time is 1900"),
    "other total_use_time": (replaced(LOG, "3000.250000sec", "3100.250000sec"), "total_use_time is 3100"),
    "other avg_ips": (replaced(LOG, "avg_ips:234.599", "avg_ips:234.700"), "avg_ips is 234.700"),
    "target not reached": (replaced(LOG, "0.71230000", "0.71090000"), "target_quality_time is declared, but"),
    "percent": (replaced(LOG, "0.71230000", "71.230000"), "accuracies are in percent"),
    "checksum of a placeholder": (replaced(LOG, "37724b19b6e5d41f9f147936d60b3c29", "xxxx"), "the checksum is xxxx"),
    "other checksum in the log": (replaced(LOG, "37724b", "bbbbbb"), "is not that of the data note"),
    "the log of another scale": (copied("GPUx1.log", "GPUx8.log"), "GPUx8.log: the same file as GPUx1.log"),
    "no accelerators": (field("accelerators_per_node", 0), "0 accelerators, but a log of GPUx32.log"),
    "accelerators without a name": (field("accelerator_name", "none"), "8 accelerators of the name none"),
    "too few accelerators": (lambda tree: (few(tree), field("number_of_nodes", 1)(tree)), "4 accelerators, but a log"),
    "Windows below linux": (field("operating_system", "Windows 10"), 'field operating_system is "Windows 10"'),
    "Linux below windows": (renamed("ACME/linux", "ACME/windows"), "field operating_system is"),
    "a field twice": (replaced(SYSTEM, "{", '{"submitter": "ACME",'), 'is not JSON ("submitter" is given twice)'),
    "an empty DEMO.md": (
        lambda tree: ((tree / "DEMO.md").write_text(""), without_line(LOG, "target_quality_time")(tree)),
        "GPUx8.log: no target_quality_time",
    ),
    "other warm-up": (replaced(CODE, "warm-up epochs: 0", "warm-up epochs: 1"), "avg_ips is"),
    "no command for 8 cards": (replaced(CODE, "8 cards:", "Eight:"), "has none for 8 card(s)"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_refused(name, copied_tree):
    change, message = MUTATIONS[name]
    change(copied_tree)
    found = check(str(copied_tree)).problems
    assert any(message in line for line in found), found


@pytest.mark.parametrize("title", SECTIONS)
def test_every_section_of_the_readme_is_needed(title, copied_tree):
    path = copied_tree / MODEL / "code/README.md"
    text = path.read_text(encoding="utf-8")
    part = re.search(rf"### {title}\n(.*?)(?=\n##|\Z)", text, re.DOTALL)
    path.write_text(text.replace(part[0], ""), encoding="utf-8")
    assert check(str(copied_tree)).problems == [f"{MODEL}/code/README.md: no section `{title}`"]
    path.write_text(text.replace(part[1], "\n"), encoding="utf-8")
    assert check(str(copied_tree)).problems == [f"{MODEL}/code/README.md: the section `{title}` is empty"]


def test_scales_that_are_left_out_are_noted(copied_tree):
    (copied_tree / LOG).unlink()
    (copied_tree / f"{MODEL}/log/GPUx32.log").unlink()
    result = check(str(copied_tree))
    assert result.problems == [] and result.logs == 1
    assert result.notes == [f"{MODEL}: without GPUx8.log, GPUx32.log, which the rules wish for"]


def test_fields_that_the_rules_do_not_name_are_noted(copied_tree):
    replaced("ACME/linux/system_information.json", "{", '{"framework": "torch",')(copied_tree)
    result = check(str(copied_tree))
    assert result.problems == []
    assert result.notes == ["ACME/linux: system_information.json has fields that the rules do not name: framework"]


def test_a_tree_of_others_needs_no_numbers_of_ours(copied_tree):
    """Without the number of samples and the warm-up, avg_ips may be that of any copy and any warm-up."""
    without_line(f"{MODEL}/data/README.md", "training samples")(copied_tree)
    replaced(f"{MODEL}/code/README.md", "avg_ips leaves out warm-up epochs: 0", "")(copied_tree)
    assert check(str(copied_tree)).problems == []
    replaced(LOG, "avg_ips:234.599", "avg_ips:249")(copied_tree)  # 249,021 clips per epoch
    assert check(str(copied_tree)).problems == []
    replaced(LOG, "avg_ips:249", "avg_ips:280")(copied_tree)
    assert check(str(copied_tree)).problems == [f"{LOG}: avg_ips is 280, by time stamps and counters 229.48 to 250.48"]


def swap(tree):
    one, eight = (tree / MODEL / f"log/GPUx{cards}.log" for cards in (1, 8))
    texts = one.read_text(), eight.read_text()
    eight.write_text(texts[0])
    one.write_text(texts[1])


@pytest.mark.parametrize(
    "change, note",
    [
        (swap, f"{LOG}: avg_ips is below that of GPUx1.log"),
        (field("submitter", "OTHER"), "ACME/linux: system_information.json: field submitter is OTHER, its folder ACME"),
        (lambda tree: (tree / f"{LOG}.txt").write_text("x"), f"{LOG}.txt: not read, its name does not end in .log"),
        (replaced(LOG, "1700000095", "1556733699"), f"{LOG}: load_data is 1658 days before test_begin"),
    ],
)
def test_what_is_strange_is_noted(change, note, copied_tree):
    change(copied_tree)
    result = check(str(copied_tree))
    assert result.problems == [] and result.notes == [note]


@pytest.mark.parametrize(
    "change",
    [
        replaced(DATA, "samples: 234619", "samples: 234,619"),
        replaced(CODE, "### Loss", "warm-up epochs: 5 (of the learning rate)\n\n### Loss"),
        lambda tree: (tree / SYSTEM).write_text((tree / SYSTEM).read_text(), encoding="utf-8-sig"),
        replaced(CODE, "8 cards:", "8 x V100 GPUs:"),
        field("host_storage_capacity", "4 x 960 GB"),
        field("number_of_nodes", 1),  # as published beside logs of 32 cards
        lambda tree: (few(tree), field("number_of_nodes", 8)(tree)),
    ],
)
def test_other_forms_are_accepted(change, copied_tree):
    change(copied_tree)
    result = check(str(copied_tree))
    assert (result.problems, result.notes) == ([], [])


def test_a_demo_is_noted(copied_tree):
    (copied_tree / "DEMO.md").write_text("# A demo, not a submission\n")
    replaced(LOG, "0.71230000", "0.21230000")(copied_tree)
    result = check(str(copied_tree))
    assert result.problems == [] and result.notes[0].startswith("a demo, not a submission")


def test_published_logs_in_a_tree(copied_tree):
    """Logs as they were submitted deviate; a published system_information.json does not."""
    folder = copied_tree / MODEL / "log"
    for cards, name in ((1, "tsm-paddle-1gpu-amp"), (8, "tsm-paddle-8gpu-amp"), (32, "tsm-paddle-32gpu-amp")):
        (folder / f"GPUx{cards}.log").write_bytes((ROOT / f"tests/airank/{name}.log").read_bytes())
    source = ROOT / "tests/airank/system_information/train-pytorch.json"
    (copied_tree / "ACME/linux/system_information.json").write_bytes(source.read_bytes())
    found = check(str(copied_tree)).problems
    assert f"{LOG}: no test_finish" in found and f"{LOG}: no evaluation reaches AI-Rank's target 0.711" in found
    assert not any("system_information" in line for line in found)


def test_no_folder(tmp_path):
    with pytest.raises(UserError, match="there is no such folder"):
        check(str(tmp_path / "missing"))
    assert check(str(tmp_path)).problems == [f"{tmp_path}: no folder submitter/system in it"]


def damage(rng, tree):
    """Change one file of a tree: bytes lost, added or replaced, or another file in its place."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    at, kind = rng.randrange(len(content) + 1), rng.randrange(5)
    if kind == 0:
        content = content[:at]
    elif kind == 1:
        del content[at : at + rng.randint(1, 99)]
    elif kind == 2:
        content[at:at] = rng.randbytes(rng.randint(1, 99))
    elif kind == 3:
        content[at : at + 9] = rng.choice([b"1e99", b"9" * 40, b"-1", b"nan", b"[[[", b"null", b"\n\n", b"\0", b"##"])
    else:
        content = bytearray(rng.choice(files).read_bytes())
    path.write_bytes(content)


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))])
def test_damaged_trees_are_reported_on(block, copied_tree):
    rng = random.Random(block)
    files = {path: path.read_bytes() for path in copied_tree.rglob("*") if path.is_file()}
    for _ in range(100):
        for _ in range(rng.randint(1, 3)):
            damage(rng, copied_tree)
        assert isinstance(check(str(copied_tree)).problems, list)
        rows([str(copied_tree)], None)
        for path, content in files.items():
            path.write_bytes(content)
