"""Rules of `optim.groups` as a recipe has them."""

import pytest

from zoo.config.convert import convert, plain
from zoo.config.schema import GroupRule

RULES = tuple[GroupRule, ...]


def test_a_list_is_read_and_written_again():
    written = [{"match": "layer[12].*", "lr": 0.1}, {"match": "fc.*", "decay": 0.0, "freeze": True}]
    rules = convert([written[0], {**written[1], "lr": "1e0"}], RULES)
    assert rules == (GroupRule("layer[12].*", 0.1), GroupRule("fc.*", 1.0, 0.0, True))
    assert plain(rules) == written and convert(plain(rules), RULES) == rules


def test_a_pattern_is_one_of_whole_names():
    rule = GroupRule("layer[12].*")
    assert rule.matches("layer1.0.conv1.weight") and not rule.matches("layer3.0.conv1.weight")
    assert not rule.matches("aux.layer1.0.conv1.weight")


@pytest.mark.parametrize(
    "rule, message",
    [
        ("layer1", "expected keys such as"),
        ({"lr": 0.1}, "expected keys such as"),
        ({"match": "("}, "changes nothing"),
        ({"match": "(", "lr": 0.1}, "'\\('.* is no regular expression"),
        ({"match": "a", "lr": -1}, "lr: must be at least 0, got -1"),
        ({"match": "a", "decay": float("nan")}, "decay: must be at least 0"),
        ({"match": "a", "lr": True}, "lr: expected a number"),
        ({"match": "a", "freeze": 1}, "freeze: expected true or false, got 1"),
        ({"match": "a", "freze": True}, "unknown key 'freze'; did you mean freeze?"),
    ],
)
def test_mistakes(rule, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        convert([rule], RULES)
