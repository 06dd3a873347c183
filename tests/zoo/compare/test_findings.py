"""zoo/compare/findings.py: a wrong computation in one of two or three frameworks, in every stage of the proof."""

import pytest

from tests.helpers import proofs
from zoo.compare.findings import judge
from zoo.parity.record import CLIPPED

ALL = ("torch", "paddle", "mindspore")
PAIR = ("torch", "paddle")
NONE = "no cause is given"


def verdict_of(changes, count=3):
    return judge(*proofs.planted(count, **changes))


@pytest.mark.parametrize("titles", [ALL, PAIR, ("mindspore", "torch"), ("torch",)])
def test_equal_computations_have_no_findings(titles):
    fp64, fp32 = proofs.make({title: proofs.RIGHT[title] for title in titles})
    assert judge(fp64, fp32).findings == []
    assert judge(fp32, fp32).findings == []  # no framework has fp64
    assert bool(judge(fp64, fp32).differences) == (len(titles) > 1)


FORWARD = [  # what is changed, the tensor, the cause, the places
    ({"input_scale": 255}, "training: input of the model", "pixels of 0 to 255", "{0}/preprocess.py"),
    ({"eps": 1e-3}, "training: output of stage.bn", "epsilon or variance of a normalization", "{0}/blocks.py"),
    ({"eps": 1.1e-5}, "training: output of stage.bn", "epsilon or variance of a normalization", "{0}/blocks.py"),
    ({"has_relu": False}, "training: output of stage", "a ReLU is missing", "{0}/blocks.py, {0}/model.py"),
    (
        {"keeps_pixels": True},
        "training: input of fc has another shape",
        "(8, 4, 1, 1)",
        "{0}/model.py:21, {0}/model.py",
    ),
    ({"eps": -1e3}, "training: output of stage.bn", "it is not finite", "{0}/blocks.py"),
]
UPDATE = [
    ({"smoothing": 0.0}, "update 1: loss", "label smoothing is 0 instead of 0.1", "{0}/objective.py, {0}/trainer.py"),
    ({"flow": 0.5}, "update 1: gradient of stage.bn.weight", "it is 0.5 times", "{0}/blocks.py, {0}/model.py:21"),
    ({"rate": 0.01}, "update 1: statistic of stage.bn.running_mean", "is 0.99 (", "{0}/blocks.py, {0}/statistics.py"),
    (
        {"is_biased": True},
        "statistic of stage.bn.running_var",
        "is the biased one: of 288",
        "{0}/blocks.py, {0}/statistics.py",
    ),
    ({"is_stale": True}, "training after the updates: output of fc", NONE, "{0}/model.py"),
]


@pytest.mark.parametrize("changes, what, cause, places", FORWARD + UPDATE)
def test_the_majority_tells_which_of_three_is_wrong(changes, what, cause, places):
    first = verdict_of(changes).findings[0]
    assert first.titles == ("paddle",)
    assert what in first.what
    assert cause in (first.cause or NONE)
    assert first.places == tuple(places.format("paddle").split(", "))


@pytest.mark.parametrize("changes, what, cause, places", FORWARD + UPDATE)
def test_of_two_either_may_be_wrong(changes, what, cause, places):
    """The cause is given for both cases: one of them is what happened, whichever framework is right."""
    first = verdict_of(changes, 2).findings[0]
    titles = ("paddle",) if cause == "it is not finite" else PAIR
    assert first.titles == titles
    assert what in first.what and cause in (first.cause or NONE)
    assert first.places == tuple(place for title in titles for place in places.format(title).split(", "))


def test_if_all_three_differ_none_is_known_to_be_right():
    variants = {
        title: variant._replace(eps=eps) for (title, variant), eps in zip(proofs.RIGHT.items(), (1e-5, 1e-4, 1e-3))
    }
    (first,) = judge(*proofs.make(variants)).findings
    assert first.titles == ALL and "training: output of stage.bn" in first.what
    assert first.places == tuple(f"{title}/blocks.py" for title in ALL)


OPTIMIZER = [
    ({"momentum": 0.8}, "update 2: 5 of 5 tensors", "the momentum is 0.8 instead of 0.9"),
    (
        {"decay_scale": 0.5},
        "update 1: 2 of 5",
        "the weight decay is 0.005 instead of 0.01 (stage.conv.weight, fc.weight)",
    ),
    ({"decay_scale": 0.0}, "update 1: 2 of 5", "the weight decay is 0 instead of 0.01 (stage.conv.weight, fc.weight)"),
    ({"clip_norm": 1e9}, "update 1: 5 of 5", "clipping or scaling"),
]


@pytest.mark.parametrize("changes, what, cause", OPTIMIZER)
@pytest.mark.parametrize("count", [2, 3])
def test_the_formula_of_the_optimizer_tells_who_is_wrong(changes, what, cause, count):
    """Also of two; the change of the weights, which follows from it, is no finding of its own."""
    (finding,) = verdict_of(changes, count).findings
    assert finding.titles == ("paddle",) and finding.places == ("paddle/update.py",)
    assert what in finding.what and "not updated by the optimizer's formula" in finding.what
    assert cause in finding.cause


def test_an_optimizer_of_sharded_parameters_only():
    fp64, fp32 = proofs.planted(decay_scale=0.5)
    for records in (fp64, fp32):
        for record in records.values():
            record.settings["sharded"] = ["fc.weight", "stage.conv.weight"]
    (finding,) = judge(fp64, fp32).findings
    assert finding.places == ("paddle/shards.py", "paddle/update.py")


@pytest.mark.parametrize(
    "key, what, places",
    [
        ("update 1/grad_norm", "update 1: grad_norm", "paddle/update.py"),
        ("update 1/change/fc.bias", "update 1: change of fc.bias", "paddle/update.py"),
        ("update 2/optimizer/momentum/fc.bias", "update 2: optimizer of momentum/fc.bias", "paddle/update.py"),
        ("prediction", "prediction", "paddle/output.py, paddle/trainer.py"),
        ("in windows/prediction", "in windows: prediction", "paddle/output.py, paddle/trainer.py"),
        ("evaluation/2/out0", "evaluation: output of stage.conv", "paddle/blocks.py"),
        ("evaluation/4/in0", "evaluation: input of fc", "paddle/model.py:21, paddle/model.py"),
        ("update 2/loss", "update 2: loss", "paddle/objective.py, paddle/trainer.py"),
    ],
)
def test_a_tensor_that_nothing_before_it_explains(key, what, places):
    """With the factor by which it differs; without a cause for what the optimizer made."""
    fp64, fp32 = proofs.make(proofs.RIGHT)
    (finding,) = judge(proofs.edit(fp64, "paddle", key, lambda values: 1.5 * values), fp32).findings
    assert finding.titles == ("paddle",) and finding.what.startswith(f"{what} differs by 3.3e-01 ")
    assert finding.places == tuple(places.split(", ")) and finding.cause == "it is 1.5 times the others'"
    assert "where rounding explains" in finding.what and "it is the first of 1 tensors that differ" in finding.what


def test_the_first_gradient_that_differs_is_that_of_the_loss():
    """If all differ, the loss is scaled; if the last layer's differs and others do not, it may also be the layer."""
    fp64, fp32 = proofs.make(proofs.RIGHT)
    everything = fp64
    for name in proofs.GROUPS:
        everything = proofs.edit(everything, "paddle", f"update 1/gradient/{name}", lambda values: values / 8)
    finding = judge(everything, fp32).findings[0]
    assert finding.places == ("paddle/objective.py", "paddle/trainer.py") and "update 1: gradient of fc" in finding.what
    assert finding.cause == "it is 0.125 times the others': the mean over samples is taken twice"
    last = proofs.edit(fp64, "paddle", "update 1/gradient/fc.weight", lambda values: values / 8)
    assert judge(last, fp32).findings[0].places == ("paddle/objective.py", "paddle/model.py")


def test_a_gradient_that_differs_from_the_second_update_on_depends_on_something_kept():
    """The trainer keeps it; a clipped update starts from the initial weights, so there it is the module as usual."""
    fp64, fp32 = proofs.make(proofs.RIGHT)
    places = judge(proofs.edit(fp64, "paddle", "update 2/gradient/fc.weight", lambda g: 2 * g), fp32).findings[0].places
    assert places == ("paddle/trainer.py", "paddle/update.py", "paddle/model.py")
    for record in (*fp64.values(), *fp32.values()):
        rename(record, "update 2", CLIPPED)
    finding = judge(proofs.edit(fp64, "paddle", f"{CLIPPED}/gradient/fc.weight", lambda g: 2 * g), fp32).findings[0]
    assert finding.places == ("paddle/objective.py", "paddle/model.py")


def rename(record, stage, title):
    """Give an update another title."""
    for tensors in (record.excerpts, record.shapes):
        for key in [key for key in tensors if key.startswith(stage)]:
            tensors[title + key.removeprefix(stage)] = tensors.pop(key)
    for step in record.steps:
        step["title"] = step["title"].replace(stage, title)


def test_the_input_of_a_module_is_looked_for_where_it_is_called():
    fp64, fp32 = proofs.make(proofs.RIGHT)
    moved = proofs.edit(fp64, "paddle", "training/4/in0", lambda values: values[:, ::-1])
    (finding,) = judge(moved, fp32).findings
    assert finding.places == ("paddle/model.py:21", "paddle/model.py") and "training: input of fc" in finding.what


def test_a_parameter_that_one_framework_does_not_train():
    (finding,) = verdict_of({"frozen": ("stage.bn.weight",)}).findings
    assert finding.titles == ("paddle",) and finding.places == ("paddle/trainer.py",)
    assert finding.what == "stage.bn.weight is not trained, as it is elsewhere"


def test_a_parameter_that_only_one_framework_trains():
    frozen = {title: variant._replace(frozen=("fc.bias",)) for title, variant in proofs.RIGHT.items()}
    (finding,) = judge(*proofs.make({**frozen, "paddle": proofs.RIGHT["paddle"]})).findings
    assert finding.titles == ("paddle",) and finding.places == ("paddle/trainer.py",)
    assert finding.what.startswith("fc.bias is trained, as it is not elsewhere")


def test_rounding_in_excess_is_a_finding_if_nothing_else_differs():
    (finding,) = verdict_of({"is_coarse": True}).findings
    assert finding.titles == ("paddle",) and finding.places == ("paddle/blocks.py", "paddle/precision.py")
    assert finding.what.startswith("training: output of stage.conv in fp32 differs from fp64 by ")
    (finding,) = verdict_of({"is_coarse": True, "flow": 0.5}).findings
    assert "gradient" in finding.what


def test_an_optimizer_that_is_wrong_in_the_precision_of_the_run_alone():
    fp64, _ = proofs.make(proofs.RIGHT)
    (finding,) = judge(fp64, proofs.planted(momentum=0.8)[1]).findings
    assert finding.titles == ("paddle",) and "the momentum is 0.8 instead of 0.9" in finding.cause


def test_parameters_without_a_gradient_from_the_initial_weights():
    fp64, fp32 = proofs.make(proofs.RIGHT)
    for record in fp32.values():
        record.settings["without_gradient"] = ["fc.bias", "fc.weight"]
    (finding,) = judge(fp64, fp32).findings
    assert finding.titles == ("every framework",) and finding.places == ("torch/model.py",)
    assert "initial weights, the gradient of fc.bias, fc.weight is 0" in finding.what
    fp32["torch"].settings["without_gradient"] = []
    assert judge(fp64, fp32).findings[0].titles == ("paddle", "mindspore")


def in_fp16(record):
    excerpts = {key: values.astype("float16").astype(float) for key, values in record.excerpts.items()}
    return record._replace(precision="fp16", excerpts=excerpts)


def test_autocast_that_is_ignored():
    fp64, fp32 = proofs.make(proofs.RIGHT)
    rounded = {title: in_fp16(record) for title, record in fp64.items()}
    assert judge(fp64, fp32, rounded).findings == []
    (finding,) = judge(fp64, fp32, {**rounded, "paddle": fp32["paddle"]._replace(precision="fp16")}).findings
    assert finding.titles == ("paddle",) and finding.places == ("paddle/trainer.py", "paddle/precision.py")
    assert "the model computes in another type" in finding.what


def test_what_the_reference_finds_in_16_bits():
    fp64, fp32 = proofs.make(proofs.RIGHT)
    fp64["torch"].settings["opinions"] = [["a", ["a.py"]]]
    mixed = {
        "torch": in_fp16(
            fp64["torch"]._replace(settings={**fp32["torch"].settings, "opinions": [["a", []], ["b", []]]})
        )
    }
    assert [finding.what for finding in judge(fp64, fp32, mixed).findings] == ["a", "b"]
