"""system_information.json: from the record of a run, and as others wrote it (tests/airank/ORIGIN.txt)."""

import json

import pytest

from tests.helpers.journals import full_begin, host
from tests.helpers.paths import ROOT
from zoo.bench.submission.rules import FIELDS
from zoo.bench.submission.system import describe, extra_fields, problems, render, unknown

PUBLISHED = ROOT / "tests/airank/system_information"
GIVEN = {"submitter": "ACME", "hardware_type": "datacenter", "host_storage_type": "SSD"}


def good():
    return describe(full_begin(cards=32, nodes=4), GIVEN)


def test_the_fields_of_a_run():
    assert good() == {
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
    text = render(good())
    assert problems(text) == [] and extra_fields(text) == []
    assert {name: type(value) for name, value in json.loads(text).items()} == {
        name: field.kind for name, field in FIELDS.items()
    }


def test_what_a_machine_does_not_tell_is_named():
    machine = {**host("a", [0]), "hardware": None, "storage_bytes": None, "cores": None}
    assert unknown(describe(full_begin(hosts=[machine]), {})) == [
        "host_processor_core_count",
        "host_storage_capacity",
        "host_storage_type",
        "submitter",
        "hardware_name",
        "hardware_type",
    ]


def test_the_command_line_takes_precedence():
    fields = describe(
        full_begin(), {**GIVEN, "number_of_nodes": 2, "hardware_name": "ACME X1", "operating_system": None}
    )
    assert (fields["number_of_nodes"], fields["hardware_name"]) == (2, "ACME X1")
    assert fields["operating_system"] == "CentOS Linux release 7.5.1804"


def test_one_card_of_a_machine_with_eight():
    machine = {**host("a", [0]), "accelerators_present": 8}
    assert describe(full_begin(hosts=[machine]), {})["accelerators_per_node"] == 8


def test_a_run_on_cpus():
    machine = {**host("a", [0]), "accelerators": [], "libraries": {}, "storage_bytes": 270_553_174_016}
    fields = describe(full_begin(hosts=[machine]), GIVEN)
    assert [fields[f"accelerator{name}"] for name in ("_name", "s_per_node", "_memory_capacity")] == ["none", 0, "0 GB"]
    assert fields["host_storage_capacity"] == "271 GB"
    assert fields["software_stack"] == "PyTorch 2.13.0, Python 3.11.2" and problems(render(fields)) == []


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_needed_in_its_type(name):
    fields = good()
    other = "8" if FIELDS[name].kind is int else 8
    assert problems(json.dumps({key: value for key, value in fields.items() if key != name})) == [
        f"field {name} is missing"
    ]
    for wrong in (other, None, [], True, 8.0):
        (problem,) = problems(json.dumps({**fields, name: wrong}))
        assert problem.startswith(f"field {name} must be {'an integer' if FIELDS[name].kind is int else 'a string'}")


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("hardware_name", "xxx", "says nothing"),
        ("submitter", "", "says nothing"),
        ("operating_system", " ", "says nothing"),
        ("accelerator_name", "xxx", "says nothing"),
        *[
            ("hardware_name", value, "says nothing")
            for value in ("TBA", "-", "—", "xxx xxx", "not recorded", "unknown")
        ],
        *[("host_memory_capacity", value, "is") for value in ("0 GB", "0.0 TB", "4 x 0 GB")],
        ("host_memory_capacity", "432", "not a size"),
        ("accelerator_memory_capacity", "much", "not a size"),
        ("number_of_nodes", 0, "below 1"),
        ("accelerators_per_node", -1, "below 0"),
    ],
)
def test_values_that_cannot_be_meant(name, value, message):
    (problem,) = problems(json.dumps({**good(), name: value}))
    assert name in problem and message in problem


@pytest.mark.parametrize("value", ["432 GB", "432GB", "512 GiB", "3.6T", "4 x 960 GB", "4x 960 GB", "0.5 TB"])
def test_sizes(value):
    assert problems(json.dumps({**good(), "host_storage_capacity": value})) == []


def test_values_that_a_demo_may_have():
    text = json.dumps({**good(), "host_storage_capacity": "0 GB", "hardware_name": "not recorded"})
    assert len(problems(text)) == 2 and problems(text, is_demo=True) == []


def test_a_field_that_is_given_twice():
    (problem,) = problems(render(good()).replace("{", '{"submitter": "B",'))
    assert problem == 'is not JSON ("submitter" is given twice)'


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1e999}', "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_other_texts_are_named(text):
    assert problems(text)


def test_published_files():
    for name in ("train-pytorch", "train-tensorflow", "inference-cloud-pytorch"):
        assert problems((PUBLISHED / f"{name}.json").read_text()) == []
    assert problems((PUBLISHED / "train-hrnet-draft.json").read_text()) == [
        'field hardware_name is "xxx", which says nothing',
        'field hardware_type is "xxx", which says nothing',
    ]
    mobile = (PUBLISHED / "inference-mobile-kirin990.json").read_text()
    assert len(problems(mobile)) == 12 and "device" in extra_fields(mobile)
