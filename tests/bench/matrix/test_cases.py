"""Cases of a matrix: what they are, where their runs lie, in which order they come."""

from argparse import Namespace
from pathlib import Path

import pytest

from tests.helpers.paths import CONFIGS, ROOT
from zoo.bench.dlperf import parse_name as parse
from zoo.bench.matrix.cases import Case, Recipe, Variant, expand, read_recipes, read_variants, shuffled
from zoo.bench.options import Cluster
from zoo.data.errors import UserError

TSM, RESNET = str(CONFIGS / "tsm_demo.yaml"), str(CONFIGS / "resnet50_demo.yaml")
RECIPE = Recipe("tsm_demo", TSM, "tsm", "tsm")


def cases_of(*variants, **changes):
    arguments = Namespace(frameworks=["torch", "paddle"], precisions=["fp32", "amp"], batches=[8, 16], override=[],
                          find_batch=False, worlds=[Cluster(1, 1), Cluster(1, 2)])  # fmt: skip
    vars(arguments).update(changes)
    return expand(arguments, read_recipes([TSM, RESNET], []), variants or [Variant()])


def test_a_matrix_is_the_product_of_its_dimensions():
    cases = cases_of()
    assert len(cases) == len(set(cases)) == 32 and all(case.sets_batch for case in cases)
    assert str(cases[0]) == "tsm_demo torch fp32 1x1 batch 8"
    assert len(cases_of(Variant("base"), Variant("slow"))) == 64


def test_batches_of_the_recipes():
    cases = cases_of(batches=[], override=["train.global_batch=24"])
    assert {(case.recipe.name, str(case.world)): case.batch for case in cases} == {
        ("tsm_demo", "1x1"): 12,  # the global batch is shared, in micro-batches of 16 at most
        ("tsm_demo", "1x2"): 12,
        ("resnet50_demo", "1x1"): 24,
        ("resnet50_demo", "1x2"): 12,
    }
    assert not any(case.sets_batch for case in cases)
    assert {case.batch for case in cases_of(batches=[], find_batch=True)} == {None}


def test_runs_lie_in_the_layout_of_dlperf():
    case = Case(Variant(), RECIPE, "torch", "fp32", 8, Cluster(2, 4))
    stem = case.stem(Path("out"), 3)
    assert stem.as_posix() == "out/torch/tsm/bz8/2n4g/tsm_b8_fp32_3"
    name = parse(f"{stem}.log")
    assert (name.case, name.model, name.batch, name.precision, name.run) == ("2n4g", "tsm", 8, "fp32", 3)
    assert case._replace(variant=Variant("slow")).stem(Path("out"), 1).parts[1] == "slow"


def test_recipes_of_the_same_model_get_folders_of_their_own():
    k400 = str(CONFIGS / "tsm_k400.yaml")
    assert [recipe.folder for recipe in read_recipes([TSM, k400, RESNET], [])] == ["tsm-demo", "tsm-k400", "resnet"]
    with pytest.raises(UserError, match="two recipes are called tsm_demo"):
        read_recipes([TSM, TSM], [])


def test_every_round_has_an_order_of_its_own_and_variants_of_a_case_run_together():
    cases, firsts, orders = cases_of(Variant("base"), Variant("slow")), set(), set()
    for number in (1, 2, 3):
        groups = shuffled(cases, number)
        assert {case for group in groups for case in group} == set(cases) and groups == shuffled(cases, number)
        orders.add(tuple(one.group for one, _ in groups))
        for one, other in groups:
            assert one.group == other.group and one != other
            firsts.add(one.variant.name)
    assert firsts == {"base", "slow"} and len(orders) == 3


def test_variants_are_options_or_checkouts(tmp_path):
    assert read_variants([]) == [Variant()]
    found = read_variants(["fast:-o train.channels_last=true -o 'model.x=1 2'", f"other={ROOT}"])
    assert found[0] == Variant("base") and found[1].options == ("-o", "train.channels_last=true", "-o", "model.x=1 2")
    assert found[2] == Variant("other", ROOT)
    for word in ("slow", "slow:", "a b:-o x=1", "../x:-o x=1", f"slow={tmp_path}", "base:-o x=1", "slow:'"):
        with pytest.raises(UserError, match="--variant"):
            read_variants([word])
