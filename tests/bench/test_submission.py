"""Submissions to AI-Rank: what runs lack, the files of the tree and their texts, the check of a tree, the table."""

import json
import re
import shutil
from decimal import Decimal

import pytest
import yaml

from tests.helpers.journals import full_begin, full_load, host
from tests.helpers.paths import ROOT
from tests.helpers.submissions import GIVEN, VAL, events, recipe_text, write_run, write_scales
from zoo.bench.submission import rules, runs, tree
from zoo.bench.submission.check import check, rows, summary
from zoo.config import loader
from zoo.data.errors import UserError
from zoo.run.request import FIND

LOAD = json.dumps(full_load()) + "\n"


MODEL = "ACME/linux/tsm"


@pytest.fixture(scope="session")
def good_tree(tmp_path_factory):
    """A tree that every check accepts; not to be changed."""
    folder = tmp_path_factory.mktemp("submission")
    scales = {cards: runs.read(path) for cards, path in write_scales(folder).items()}
    plan = tree.plan(scales, GIVEN)
    assert plan.missing == []
    tree.write(str(folder / "tree"), plan.files)
    return folder / "tree"


@pytest.fixture
def copied_tree(good_tree, tmp_path):
    """A copy of the tree, to be changed."""
    return shutil.copytree(good_tree, tmp_path / "tree")


def missing(scales):
    return runs.missing({cards: runs.read(path) for cards, path in scales.items()}, rules.LISTED["tsm"])


def without(name):
    return lambda found: [event for event in found if event["event"] != name]


def changed(name, **changes):
    return lambda found: [{**event, **changes} if event["event"] == name else event for event in found]


NO_GPUS = [{**host("n1", range(8)), "accelerators": []}]
TWO_KINDS = [host("n1", range(4)), {**host("n2", range(4, 8)), "accelerators": [{"name": "A100"}] * 4}]


@pytest.mark.parametrize(
    "change, message",
    [
        (without("end"), "unfinished: continue it with --resume"),
        (without("eval"), "no evaluation"),
        (changed("eval", accuracy=0.7109), "target not reached: best top1 0.7109, AI-Rank's target is 0.711"),
        (changed("load", checksum=None), "the checksum of the data is missing"),
        (changed("load", checksum="synthetic"), "the checksum of the data is synthetic"),
        (changed("begin", git=None), "the commit of the code is unknown"),
        (changed("begin", git={"commit": "01" * 20, "dirty": True}), "the code differed from commit 010101010101"),
        (changed("begin", speed={"drop": 20, "count": 100}), "a run of --speed"),
        (changed("begin", ranks=4), "the run had 4 processes, not 8"),
        (changed("begin", hosts=NO_GPUS), "the run used 0 GPUs or NPUs for 8 processes"),
        (changed("begin", hosts=TWO_KINDS), "the run used 2 machines, 8 cards are 1"),
        (changed("begin", hosts=TWO_KINDS), "the machines differ: A100, Tesla V100-SXM2-16GB"),
        (
            changed("begin", data="motion", protocol="motion/8x1x1@32"),
            "trained on motion (motion/8x1x1@32), the rules demand",
        ),
        (changed("begin", protocol="ssv2/8x1x1@224"), "the rules demand Kinetics-400"),
        (
            changed("begin", protocol="k400/8x10x3@256-dense"),
            "protocol k400/8x10x3@256-dense, which is not that of AI-Rank's",
        ),
        (changed("begin", protocol="k400"), "evaluated by the protocol k400"),
        (changed("begin", metric="top5"), "the accuracy is top5, the rules demand top1"),
        (changed("eval", samples=100), "the evaluation at step 1000 took 100 of 19761 samples"),
        (changed("eval", samples=VAL, bad=19000), "the evaluation at step 1000 took 761 of 19761 samples"),
        (changed("begin", train_samples=1000), "train_samples are 1000; Kinetics-400 has 230000 to 250000"),
        (changed("begin", val_samples=40), "val_samples are 40; Kinetics-400 has 19000 to 20500"),
        (changed("begin", arch={"depth": 18}), "the model has depth 18, not 50"),
        (changed("begin", eval_every="5 epochs"), "evaluated every 5 epochs, the rules demand every 1 epoch"),
    ],
)
def test_every_omission_of_a_run_is_named(change, message, tmp_path):
    path = write_run(tmp_path / "run", change(events(8)))
    found = missing({8: path})
    assert any(message in line and line.startswith(f"GPUx8.log ({path}): ") for line in found), found


@pytest.mark.parametrize(
    "model, views, others",
    [
        ("tsm", ["8x1x1@224", "8x1x1@224-test"], ["16x1x1@224", "8x2x1@224-twice", "8x1x3@256"]),
        ("resnet", ["224-of-256"], ["320-of-366", "224-of-224", ""]),
        (
            "deeplabv3plus",
            ["whole@1024x2048", "slide769x769/513x513@1025x2049", "whole@full"],
            ["whole@1024x2048-flip", "whole@1024x2048*0.5,1", "whole@512x1024"],
        ),
    ],
)
def test_protocols_of_ai_ranks_targets(model, views, others):
    pattern = re.compile(rules.LISTED[model].views)
    assert [pattern.fullmatch(view) is not None for view in views + others] == [True] * len(views) + [False] * len(
        others
    )


@pytest.mark.parametrize(
    "name, value",
    [("seed", 2), ("framework", "paddle"), ("framework_version", "2.12.0"), ("compute", "fp32")],
)
def test_what_differs_between_scales_is_named(name, value, tmp_path):
    scales = write_scales(tmp_path, cards=(1,)) | {
        8: write_run(tmp_path / "b", changed("begin", **{name: value})(events(8)))
    }
    (line,) = missing(scales)
    assert line.startswith(f"GPUx1.log and GPUx8.log differ in {name}: ") and line.endswith(f"and {value}")


def test_another_recipe_between_scales_is_named(tmp_path):
    one = write_scales(tmp_path, cards=(1,))
    other = write_run(tmp_path / "b", events(8), overrides=["optim.lr=0.03", "model.dropout=0.4"])
    assert missing(one | {8: other}) == [
        "GPUx1.log and GPUx8.log differ in the recipe: model.dropout: 0.5 and 0.4",
        "GPUx1.log and GPUx8.log differ in the recipe: optim.lr: 0.02 and 0.03",
    ]
    divided = write_run(tmp_path / "c", events(8), overrides=["train.batch=8", "data.workers=8"])
    assert missing(one | {8: divided}) == []


OTHER_GPU = [{**host("n1", range(8)), "accelerators": [{"name": "NVIDIA H100"}] * 8}]
OPTIMIZER = events(8)[1]["optimizer"]


def resumed(folder, **changes):
    """Write a run with a resume after its first epoch; changes: of its event."""
    found = events(8)
    facts = {name: found[1][name] for name in FACTS}
    found.insert(3, {"event": "resume", "time": found[2]["time"] + 1, "step": 1000, **facts, **changes})
    return write_run(folder, found)


FACTS = (  # of the event `resume`
    *("framework", "framework_version", "git", "hosts", "device", "ranks", "batch", "accumulate", "global_batch"),
    *("compute", "level", "channels_last", "compile", "precision", "loss_scale", "optimizer", "eval_batch", "workers"),
    *("threads", "loader", "recipe_sha256"),
)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"ranks": 4, "global_batch": 64}, "ranks, global_batch"),
        ({"framework": "paddle"}, "framework"),
        ({"framework_version": "2.14.0"}, "framework_version"),
        ({"loader": "dali"}, "loader"),
        ({"optimizer": {**OPTIMIZER, "momentum": 0.5}}, "optimizer"),
        ({"recipe_sha256": "cd" * 32}, "recipe_sha256"),
        ({"hosts": OTHER_GPU}, "machines"),
        ({"hosts": [host("n1", range(4)), host("n2", range(4, 8))]}, "machines"),
        ({"git": {"commit": "ab", "dirty": False}}, "commit"),
        ({"git": {**events(8)[1]["git"], "dirty": True}}, "the code differed from commit 0123456789ab"),
        ({"git": None}, "the commit of the code is unknown"),
    ],
)
def test_a_run_that_was_continued_otherwise_is_named(change, message, tmp_path):
    (line,) = missing({8: resumed(tmp_path / "run", **change)})
    assert f": continued at step 1000: {message}" in line or line.endswith(f" step 1000 with another {message}")


def test_what_a_resume_may_change(tmp_path):
    assert missing({8: resumed(tmp_path / "same")}) == []
    free = {"batch": 8, "accumulate": 2, "eval_batch": 4, "workers": 9, "threads": 3, "device": "cuda:1 (V100)"}
    assert missing({8: resumed(tmp_path / "free", **free)}) == []


def test_other_data_after_a_resume(tmp_path):
    found = events(8)
    change = {"event": "data_changed", "time": found[2]["time"] + 1, "first_step": 1000, "checksum": "ab" * 16}
    found.insert(3, change)
    (line,) = missing({8: write_run(tmp_path / "run", found)})
    assert line.endswith(f"continued at step 1000 with data whose checksum is {'ab' * 16}")


def test_the_log_has_ai_ranks_target_whatever_that_of_the_recipe(tmp_path):
    run = runs.read(write_run(tmp_path / "run", events(8, changes={"target": 0.5})))
    reached = [line for line in run.log(rules.LISTED["tsm"].target) if "target_quality_time" in line]
    assert reached == ["AI-Rank-log 1700002100.000000 target_quality_time:2000.000000sec"]
    assert "target_quality_time:1000.000000sec" in "".join(run.log(None))


def test_a_log_whose_numbers_do_not_recompute_is_named(tmp_path):
    found = events(8)
    found[-1]["epoch"] = 2.0  # of three evaluated epochs
    path = write_run(tmp_path / "run", found)
    (line,) = missing({8: path})
    assert "avg_ips is" in line and "by definition" in line


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "has not begun"),
        (json.dumps(full_begin()), "no events `load`"),
        (LOAD + '{"event": "begin", "time": 1}\n', "`begin` has no framework, framework_version, recipe"),
    ],
)
def test_journals_that_cannot_be_used(text, message, tmp_path):
    (tmp_path / "events.jsonl").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        runs.read(str(tmp_path))
    assert "events.jsonl" in str(caught.value)


def planned(scales, given=GIVEN):
    return tree.plan({cards: runs.read(path) for cards, path in scales.items()}, given)


def test_the_files(tmp_path):
    plan = planned(write_scales(tmp_path))
    assert plan.missing == [] and sorted(plan.files) == [
        "ACME/linux/system_information.json",
        f"{MODEL}/code/README.md",
        f"{MODEL}/code/recipe.yaml",
        f"{MODEL}/data/README.md",
        f"{MODEL}/log/GPUx1.log",
        f"{MODEL}/log/GPUx32.log",
        f"{MODEL}/log/GPUx8.log",
    ]
    assert plan.files[f"{MODEL}/log/GPUx8.log"].splitlines() == [
        "AI-Rank-log 1700000095.000000 load_data, checksum:37724b19b6e5d41f9f147936d60b3c29",
        "AI-Rank-log 1700000100.000000 test_begin",
        "AI-Rank-log 1700001100.000000 eval_accuracy:0.60000000, total_epoch_cnt:1",
        "AI-Rank-log 1700002100.000000 eval_accuracy:0.71230000, total_epoch_cnt:2",
        "AI-Rank-log 1700002100.000000 target_quality_time:2000.000000sec",
        "AI-Rank-log 1700003100.000000 eval_accuracy:0.70900000, total_epoch_cnt:3",
        "AI-Rank-log 1700003100.250000 test_finish",
        "AI-Rank-log 1700003100.250000 total_use_time:3000.250000sec",
        "AI-Rank-log 1700003100.250000 avg_ips:234.599images/sec",  # 3 x 234,619 / 3000.25
    ]


def test_the_readme_says_what_was_done(tmp_path):
    text = planned(write_scales(tmp_path)).files[f"{MODEL}/code/README.md"]
    for words in (
        "# TSM with PyTorch\n",
        "all 234619 samples of the training split",
        "seed 1",
        "resnet50-0676ba61.pth",
        "mit-han-lab/temporal-shift-module, commit 1f6a834b02120441d99fa706b7a13ccc5293c6fa",
        "Softmax cross-entropy.",
        "protocol `k400/8x1x1@224`",
        "git checkout 0123456789abcdef0123456789abcdef01234567",
        "1 card:\n\n```\nzoo train -c configs/tsm_k400.yaml --amp\n```",
        "8 cards:\n\n```\nzoo launch 1x8 -c configs/tsm_k400.yaml --amp\n```",
        "32 cards:\n\n```\nzoo launch 4x8 --hosts n1,n2,n3,n4 -c configs/tsm_k400.yaml --amp\n```",
        "32 x 1 x 16 = 512",
        "avg_ips leaves out warm-up epochs: 0",
    ):
        assert words in text, words
    assert "/data/k400" not in text and str(tmp_path) not in text and "demo" not in text


def test_the_recipe_is_that_of_the_run_without_paths(tmp_path):
    text = planned(write_scales(tmp_path)).files[f"{MODEL}/code/recipe.yaml"]
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    _, resolved = loader.build(loader.read(str(path)), FIND)
    (tmp_path / "again.yaml").write_text(recipe_text("configs/tsm_k400.yaml", [], "x"))
    _, original = loader.build(loader.read(str(tmp_path / "again.yaml")), FIND)
    assert {*loader.differences(resolved, original)} == {"out", "data.root"}
    assert "/data/k400" not in text and yaml.safe_load(text)["optim"]["lr"] == 0.02


@pytest.mark.parametrize(
    "words, expected",
    [
        (["train.py", "-c", "a.yaml", "--out", "runs/x", "--amp"], "-c code/recipe.yaml --amp"),
        (["train.py", "--config=../configs/a/b.yaml"], "--config=configs/a/b.yaml"),
        (["train.py", "-c", "configs/b.yaml"], "-c configs/b.yaml"),
        (
            ["train.py", "-c", "/home/me/zoo/configs/a/b.yaml", "-o", "data.root=/x"],
            "-c configs/a/b.yaml -o data.root=FOLDER",
        ),
        (["train.py", "--resume=runs/x", "-c", "a b"], "-c 'a b'"),
        (["/env/bin/zoo", "train", "-c", "tsm_demo", "--out", "x"], "-c tsm_demo"),
        (["/zoo/__main__.py", "launch", "--exec-rank", "/tmp/logs", "-c", "tsm_demo"], "-c tsm_demo"),
        (["train.py", "-c/home/me/zoo/configs/b.yaml", "-odata.root=/home/x"], "-cconfigs/b.yaml -odata.root=FOLDER"),
        (["train.py", "-c", "/home/me/x.yaml", "--weights", "/home/me/a b.pth"], "-c code/recipe.yaml --weights PATH"),
        (
            ["train.py", "-o", "model.pretrained=https://a.org/b.pth", "optim.lr=0.1", "train.eval_every=1 epoch"],
            "-o model.pretrained=https://a.org/b.pth optim.lr=0.1 'train.eval_every=1 epoch'",
        ),
    ],
)
def test_the_command_of_a_run(words, expected):
    run = runs.Run("x", [], full_begin(command=words), {})
    assert tree.command(run) == f"zoo train {expected}"


def test_no_text_has_a_path_of_the_machine(tmp_path):
    found = events(1, changes={"weights": "/home/me/w.pth", "command": ["/home/me/train.py", "-c", "/home/me/x.yaml"]})
    path = write_run(tmp_path / "run", found, overrides=["data.train_list=/home/me/train.list"])
    plan = planned({1: path})
    assert "Weights: PATH." in plan.files[f"{MODEL}/code/README.md"]
    assert "train_list: PATH" in plan.files[f"{MODEL}/code/recipe.yaml"]
    assert [name for name, text in plan.files.items() if "/home" in text] == []


def test_a_demo_says_what_it_lacks(tmp_path):
    found = events(1, changes={"data": "motion", "protocol": "motion/8x1x1@32", "hosts": [CPU]})
    plan = planned({1: write_run(tmp_path / "run", found)}, {"submitter": "ACME"})
    assert plan.missing[:2] == [
        "system_information.json: no host_storage_type; give --host-storage-type",
        "system_information.json: no hardware_type; give --hardware-type",
    ]
    assert any("the rules demand Kinetics-400" in line for line in plan.missing)
    text = plan.files[f"{MODEL}/code/README.md"]
    assert text.startswith("# TSM with PyTorch\n\n**This is a demo, not a submission.** It lacks:\n\n- system_info")
    assert "generated by the program on first use" in text
    assert all(f"- {line}\n" in plan.files["DEMO.md"] for line in plan.missing)


CPU = {**host("n1", [0]), "accelerators": []}


@pytest.mark.parametrize("name", ["a/b", "..", "", " "])
def test_a_submitter_names_a_folder(name, tmp_path):
    with pytest.raises(UserError, match="--submitter: .* cannot be the name of a folder"):
        planned(write_scales(tmp_path, cards=(1,)), {**GIVEN, "submitter": name})


def test_the_fields_of_a_run():
    fields = rules.describe(full_begin(cards=32, nodes=4), GIVEN)
    assert fields == {
        "accelerator_memory_capacity": "16 GB",
        "accelerator_name": "Tesla V100-SXM2-16GB",
        "accelerators_per_node": 8,
        "host_memory_capacity": "432 GB",
        "host_processor_core_count": 40,
        "host_processor_name": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
        "host_processors_per_node": 2,
        "host_storage_capacity": "3.6 TB",
        "host_storage_type": "SSD",
        "number_of_nodes": 4,
        "operating_system": "CentOS Linux release 7.5.1804",
        "software_stack": "CUDA 11.0, cuDNN 8.0.1, NCCL 2.7.8, PyTorch 2.13.0, Python 3.11.2",
        "submitter": "ACME",
        "hardware_name": "BJINVENTECV2G5MC23-40A",
        "hardware_type": "datacenter",
    }
    given = rules.describe(full_begin(), {**GIVEN, "number_of_nodes": 2, "operating_system": None})
    assert (given["number_of_nodes"], given["operating_system"]) == (2, fields["operating_system"])


def test_fields_of_other_machines():
    unknown = {**host("a", [0]), "hardware": None, "storage_bytes": None, "accelerators_present": 8}
    fields = rules.describe(full_begin(hosts=[unknown]), {})
    assert [name for name, value in fields.items() if value is None] == [
        *("host_storage_capacity", "host_storage_type", "submitter", "hardware_name", "hardware_type")
    ]
    assert fields["accelerators_per_node"] == 8
    machine = {**CPU, "libraries": {}, "storage_bytes": 270_553_174_016}
    fields = rules.describe(full_begin(hosts=[machine]), GIVEN)
    assert [fields[f"accelerator{name}"] for name in ("_name", "s_per_node", "_memory_capacity")] == ["none", 0, "0 GB"]
    assert fields["host_storage_capacity"] == "271 GB" and rules.problems(fields) == []
    assert fields["software_stack"] == "PyTorch 2.13.0, Python 3.11.2"


@pytest.mark.parametrize(
    "name, wrong", [("train-pytorch", 0), ("train-tensorflow", 0), ("inference-mobile-kirin990", 12)]
)
def test_published_files(name, wrong):
    found = json.loads((ROOT / f"tests/airank/system_information/{name}.json").read_text())
    assert len(rules.problems(found)) == wrong


LOG = f"{MODEL}/log/GPUx8.log"
SYSTEM, CODE, DATA = "ACME/linux/system_information.json", f"{MODEL}/code/README.md", f"{MODEL}/data/README.md"
FIGURES = [  # cards, Time2train, throughput: 3 x 234,619 / 24000.25, 3000.25 and 780.25 s; speed-up
    ["1", "16000.00", "29.33", "71.23", "1.00"],
    ["8", "2000.00", "234.60", "71.23", "8.00"],
    ["32", "520.00", "902.09", "71.23", "30.77"],
]


def replaced(path, old, new):
    """Return a change of a tree: a text in a file."""

    def change(tree):
        text = (tree / path).read_text(encoding="utf-8")
        assert old in text
        (tree / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def without_line(path, words):
    """Return a change of a tree: the first line with these words is removed."""

    def change(tree):
        lines = (tree / path).read_text(encoding="utf-8").splitlines(True)
        lines.remove(next(line for line in lines if words in line))
        (tree / path).write_text("".join(lines), encoding="utf-8")

    return change


def removed(*paths):
    return lambda tree: [(tree / path).unlink() for path in paths]


def field(name, value):
    """Return a change of a tree: a field of system_information.json; None removes it."""

    def change(tree):
        fields = json.loads((tree / SYSTEM).read_text())
        fields.pop(name)
        (tree / SYSTEM).write_text(json.dumps(fields if value is None else {**fields, name: value}))

    return change


MUTATIONS = {
    "no system_information.json": (removed(SYSTEM), "no submitter/system/system_information.json"),
    "field missing": (field("software_stack", None), "field software_stack is missing"),
    "wrong type": (field("number_of_nodes", "4"), "field number_of_nodes must be an integer"),
    "too small": (field("number_of_nodes", 0), "field number_of_nodes is 0"),
    "no size": (field("host_memory_capacity", "much"), "not a size"),
    "a size of zero": (field("host_memory_capacity", "0 GB"), "not a size"),
    "too few accelerators": (field("accelerators_per_node", 4), "16 accelerators, but a log of 32 cards"),
    "unlisted model": (lambda tree: (tree / MODEL).rename(tree / "ACME/linux/arcface"), "AI-Rank lists no model"),
    "no README": (removed(CODE), "code/README.md: is missing"),
    "no data note": (removed(DATA), "data/README.md: no checksum"),
    "other checksum in the note": (replaced(DATA, "37724b", "aaaaaa"), "is not that of the data note"),
    "other samples in the note": (replaced(DATA, "samples: 234619", "samples: 240000"), "avg_ips is"),
    "no logs": (removed(*(f"{MODEL}/log/GPUx{n}.log" for n in (1, 8, 32))), "log: none of GPUx1.log"),
    "no target_quality_time": (without_line(LOG, "target_quality_time"), "GPUx8.log: no target_quality_time"),
    "other checksum in the log": (replaced(LOG, "37724b", "bbbbbb"), "is not that of the data note"),
    "other warm-up": (replaced(CODE, "warm-up epochs: 0", "warm-up epochs: 1"), "avg_ips is"),
    "the log of another scale": (
        lambda tree: (tree / LOG).write_bytes((tree / MODEL / "log/GPUx1.log").read_bytes()),
        "GPUx8.log: the same file as GPUx1.log",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_named(name, copied_tree):
    assert check(str(copied_tree)) == []
    change, message = MUTATIONS[name]
    change(copied_tree)
    found = check(str(copied_tree))
    assert any(message in line for line in found), found


def test_a_demo_is_checked_like_a_submission_and_is_none(tmp_path):
    hosts = [{**CPU, "storage_type": None}]
    changes = {"data": "motion", "protocol": "motion/8x1x1@32", "hosts": hosts}
    plan = planned(
        {2: write_run(tmp_path / "run", events(2, accuracies=(0.2,), changes=changes, seconds=60))}, {"submitter": "A"}
    )
    assert f"GPUx2.log ({tmp_path / 'run'}): AI-Rank compares runs with 1, 8 and 32 cards" in plan.missing
    tree.write(str(tmp_path / "tree"), plan.files)
    found = check(str(tmp_path / "tree"))
    for what in (
        "DEMO.md: marked as a demo",
        "field host_storage_type",
        "log/GPUx2.log: no target_quality_time: best accuracy 0.2, AI-Rank's target is 0.711",
        "log/GPUx2.log: AI-Rank compares runs with 1, 8 and 32 cards",
    ):
        assert any(what in line for line in found), (what, found)


def test_a_system_without_accelerators(copied_tree):
    field("accelerators_per_node", 0)(copied_tree)
    assert check(str(copied_tree)) == [f"{SYSTEM}: 0 accelerators, but a log of 32 cards"]
    field("hardware_type", None)(copied_tree)
    assert f"{SYSTEM}: 0 accelerators, but a log of 32 cards" in check(str(copied_tree))


def test_other_folders(tmp_path):
    assert len(check(str(tmp_path))) == 1
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=str(path)):
            rows([str(path)], None)
    with pytest.raises(UserError, match="missing"):
        check(str(tmp_path / "missing"))
    (tmp_path / "a/linux").mkdir(parents=True)
    (tmp_path / "a/linux/system_information.json").write_text("{")
    with pytest.raises(UserError, match="no JSON"):
        check(str(tmp_path))


def cells(found):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in summary(found)[2:]]


def test_the_table_of_a_tree_and_of_runs(good_tree, tmp_path):
    found = rows([str(good_tree)], None)
    assert cells(found) == [["tsm", *row] for row in FIGURES]
    assert found[-1]["speedup_by_throughput"] == pytest.approx(24000.25 / 780.25)
    of_runs = rows(list(write_scales(tmp_path).values()), None)
    assert cells(of_runs) == [["tsm (torch, fp16)", *row] for row in FIGURES]


def test_speed_ups_that_no_cards_give_are_withheld(tmp_path):
    found = rows([write_run(tmp_path / "1", events(1, seconds=16000.0)), write_run(tmp_path / "8", events(8))], None)
    assert found[0]["speedup"] == 1 and found[1]["speedup"] is None
    assert " cards can give" in found[1]["remark"] and summary(found)[-1].startswith("tsm (torch, fp16), 8 cards: no ")


def test_published_logs(copied_tree):
    """As tests/airank/ORIGIN.txt and the reports have it: percent, counters from 0, no closing lines."""
    for cards, name in ((8, "tsm-pytorch-8gpu-amp-run2"), (32, "tsm-paddle-32gpu-amp")):
        path = copied_tree / f"{MODEL}/log/GPUx{cards}.log"
        path.write_bytes((ROOT / f"tests/airank/{name}.log").read_bytes())
    assert f"{LOG}: no test_finish" in check(str(copied_tree))
    found = {row["cards"]: row for row in rows([str(copied_tree)], Decimal("0.71"))}
    assert found[8]["time_to_train_s"] == pytest.approx(29802.621, abs=1e-3)
    assert found[8]["accuracy_percent"] == pytest.approx(71.118421)
    assert found[32]["time_to_train_s"] == pytest.approx(5909.337, abs=1e-3)
    assert found[32]["samples_per_s"] == pytest.approx(1786.6, abs=0.1)
