"""The tree of a submission: its files, their texts, and how it is written."""

import json

import pytest
import yaml

from tests.bench.submission.scales import GIVEN, events, recipe_text, write_run, write_scales
from tests.helpers.journals import full_begin, host
from tests.helpers.paths import ROOT
from zoo.bench.submission import readme, rules, runs, tree
from zoo.config import loader
from zoo.data.errors import UserError
from zoo.run.cli import FIND

MODEL = "ACME/linux/tsm"


def planned(scales, given=GIVEN, folder=None):
    return tree.plan({cards: runs.read(path) for cards, path in scales.items()}, given, folder)


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


def test_the_data_note(tmp_path):
    text = planned(write_scales(tmp_path)).files[f"{MODEL}/data/README.md"]
    for words in ("training samples: 234619\n", "validation samples: 19761\n", "checksum: 37724b19b6e5d41f9f147936"):
        assert words in text


def test_the_recipe_is_that_of_the_run_without_paths(tmp_path):
    text = planned(write_scales(tmp_path)).files[f"{MODEL}/code/recipe.yaml"]
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    _, resolved = loader.build(loader.read(str(path)), FIND)
    (tmp_path / "again.yaml").write_text(recipe_text("configs/tsm_k400.yaml", [], "x"))
    _, original = loader.build(loader.read(str(tmp_path / "again.yaml"), recorded=True), FIND)
    assert {line.split(":")[0] for line in loader.differences(resolved, original)} == {"out", "data.root"}
    assert "/data/k400" not in text and yaml.safe_load(text)["optim"]["lr"] == 0.02


@pytest.mark.parametrize(
    "words, expected",
    [
        (["train.py", "-c", "a.yaml", "--out", "runs/x", "--amp"], "-c a.yaml --amp"),
        (
            ["train.py", "-c", "/home/me/zoo/configs/a/b.yaml", "-o", "data.root=/x"],
            "-c configs/a/b.yaml -o data.root=FOLDER",
        ),
        (["train.py", "--resume=runs/x", "-c", "a b.yaml"], "-c 'a b.yaml'"),
        (["train.py", "-c/home/me/zoo/configs/b.yaml", "-odata.root=/home/x"], "-cconfigs/b.yaml -odata.root=FOLDER"),
        (["train.py", "-c", "/home/me/x.yaml", "--weights", "/home/me/a b.pth"], "-c code/recipe.yaml --weights PATH"),
        (
            ["train.py", "-o", "model.pretrained=/home/me/w.pth", "data.train_list=/home/me/a.list", "data.cache=tmp"],
            "-o model.pretrained=PATH data.train_list=PATH data.cache=FOLDER",
        ),
        (
            ["train.py", "-o", "model.pretrained=https://a.org/b.pth", "optim.lr=0.1", "train.eval_every=1 epoch"],
            "-o model.pretrained=https://a.org/b.pth optim.lr=0.1 'train.eval_every=1 epoch'",
        ),
    ],
)
def test_the_command_of_a_run(words, expected):
    run = runs.Run("x", [], full_begin(command=words), {})
    assert readme.command(run) == f"zoo train {expected}"


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


def test_a_model_that_is_not_listed(tmp_path):
    plan = planned({1: write_run(tmp_path / "run", events(1, changes={"model": "arcface", "task": "face"}))})
    assert plan.missing[0] == "AI-Rank lists no model arcface, but TSM, ResNet50, DeepLabV3+"
    assert "ACME/linux/arcface/log/GPUx1.log" in plan.files


def test_names_of_folders(tmp_path):
    scales = write_scales(tmp_path, cards=(1,))
    assert planned(scales, folder="TSM_torch").missing == []
    assert "ACME/linux/TSM_torch/code/README.md" in planned(scales, folder="TSM_torch").files
    assert planned(scales, folder="best").missing == ["the folder best is not named after the model; begin it with tsm"]
    for name in ("a/b", "..", "", " "):
        with pytest.raises(UserError, match="--model: .* cannot be the name of a folder"):
            planned(scales, folder=name or " ")
        with pytest.raises(UserError, match="--submitter: .* cannot be the name of a folder"):
            planned(scales, {**GIVEN, "submitter": name})


def test_a_tree_is_new(tmp_path):
    folder = tmp_path / "new/tree"
    tree.write(str(folder), {"a/b.txt": "1", "c": "2"})
    assert (folder / "a/b.txt").read_text() == "1" and (folder / "c").read_text() == "2"
    with pytest.raises(UserError, match="--out .* exists"):
        tree.write(str(folder), {"c": "3"})
    with pytest.raises(UserError, match="--out"):
        tree.write(str(folder / "c/tree"), {"a": "1"})
    assert (folder / "c").read_text() == "2"


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
