"""zoo train --explain: meaning, range, default and value of the keys of recipes."""

import pytest

from tests.helpers import package
from zoo.commands import json_schema, keys, train
from zoo.data.errors import UserError


def explained(capsys, *arguments):
    assert train.main(["--explain", *arguments]) == 0
    return capsys.readouterr().out


def refused(*arguments):
    with pytest.raises(UserError) as error:
        train.main(["--explain", *arguments])
    return str(error.value)


def test_a_key_has_its_meaning_range_and_default(capsys):
    assert explained(capsys, "train.accumulate").splitlines() == [
        "train.accumulate",
        "  Micro-batches per update and process.",
        "  values   a whole number (at least 1)",
        "  default  1",
    ]
    for key, values in {
        "optim.pct_start": "a number (above 0 and below 1)",
        "optim.loss_scale": "dynamic or a number (above 0)",
        "optim.milestones": "a list of numbers (above 0)",
        "optim.groups": "a list of rules such as {match: 'layer[12].*', lr: 0.1}",
        "train.log_every": "a duration such as 1 epoch or 500 steps",
        "train.compile": "true, false, reduce-overhead, max-autotune or null",
        "data.workers": "a whole number (at least 0) or auto",
        "data.crop": "a list of 2 whole numbers (at least 1)",
        "data.flip_pairs": "a list of lists of 2 whole numbers",
        "data.augment": "a list of augmentations or null",
        "upstream": "the keys of a section or null",
        "optim.schedule": "constant, cosine, exponential, linear, one_cycle, poly or step",
        "optim.name": "sgd, sgd_nesterov, adamw, lars, lamb or muon",
    }.items():
        assert values in {known.values for known in keys.catalog(keys.owners()) if known.name == key}, key


def test_a_key_of_several_owners_has_each_meaning_once(capsys):
    text = explained(capsys, "optim.lr")
    assert [line for line in text.splitlines() if line.startswith(("  default", "  with "))] == [
        "  default  0.1",
        "  with     optim.name: sgd, sgd_nesterov",
        "  default  0.001",
        "  with     optim.name: adamw, muon",
        "  default  0.3",
        "  with     optim.name: lars",
        "  default  0.0025",
        "  with     optim.name: lamb",
    ]


def test_a_recipe_gives_the_value_and_its_origin(capsys):
    text = explained(capsys, "train.precision", "-c", "tsm_demo", "--amp")
    assert "  value    amp, from --amp\n" in text
    assert "  value    1, the default\n" in explained(capsys, "train.accumulate", "-c", "tsm_demo")
    from_file = explained(capsys, "optim.schedule", "-c", "tsm_demo")
    assert "tsm_demo.yaml:" in from_file.replace("\n           ", " ")
    section = explained(capsys, "optim", "-c", "tsm_demo", "-o", "optim.lr=0.125")
    assert "lr                  0.125" in section and "beta1" not in section


@pytest.mark.parametrize("name", sorted({owner.section for owner in keys.owners() if owner.section}))
def test_a_section_shows_its_keys_within_80_columns(capsys, monkeypatch, name):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = explained(capsys, name).splitlines()
    assert lines[0].startswith(f"{name}: ") and max(map(len, lines)) <= 80
    for key in keys.catalog(keys.owners()):
        section, _, short = key.name.rpartition(".")
        assert section != name or any(line.startswith(f"{short} ") for line in lines)


def test_an_unknown_key_is_an_error_with_the_nearest_name():
    assert refused("train.acumulate") == "--explain: there is no key train.acumulate; did you mean train.accumulate?"
    assert "did you mean optim.lr?" in refused("learning_rate")
    elsewhere = "--explain: the recipe has no data.decoder; it belongs to data.name: kinetics, motion"
    assert refused("data.decoder", "-c", "resnet50_demo") == elsewhere
    assert "name one with -c" in refused("train", "-o", "train.batch=2")  # a change without what it changes


def test_keys_of_installed_packages(capsys, monkeypatch, tmp_path):
    """They may have no Doc, and types of their own that parse their values."""
    package.install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = tmp_path / "mynet/spec.py"
    own = "class Own:\n    parse = classmethod(lambda cls, value: value)\n\n\n@dataclass"
    text = spec.read_text().replace("@dataclass", own, 1)
    spec.write_text(text.replace("    num_classes:", "    extra: Own | None = None\n    num_classes:", 1))
    package.forget()
    try:
        lines = explained(capsys, "model.extra").splitlines()
        assert lines == ["model.extra", "  values   Own or null", "  default  null", "  with     model.name: mynet"]
        assert json_schema.schema()["$defs"]["model.mynet"]["properties"]["extra"]["default"] is None
    finally:
        monkeypatch.undo()
        package.forget()
