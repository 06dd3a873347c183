"""Which module, and which of its tensors, a difference belongs to."""

import numpy as np
import pytest

from zoo.parity.differences import Difference, Event
from zoo.parity.mapping import Match, Source
from zoo.parity.record import Call, empty
from zoo.parity.verdict import (
    Finding,
    Judged,
    _excess,
    _is_accepted,
    _is_of_biases,
    _lines_since_last,
    first_beyond,
    group,
    judge,
)


def beyond(name: str, part: str, largest: float = 1.0) -> Difference:
    calls = {"torch": Call(name, name, 0, "", (), (), 1, 1, (0, 1))}
    return Difference(
        Event({}, "training", name, part, calls if part in ("input", "output") else {}), largest, 0.1, 1.0, ()
    )


def test_inputs_and_statistics_have_findings_of_their_own():
    """So that code before a module does not hide its epsilon, nor a gradient its momentum."""
    parts = [("norm", "input"), ("norm", "output"), ("norm.weight", "gradient"), ("norm.running_var", "statistic")]
    found = group([beyond(*part) for part in parts])
    assert {key: len(differences) for key, differences in found.items()} == {
        ("norm", "input"): 1,
        ("norm", ""): 2,
        ("norm", "statistic"): 1,
    }


def test_gradients_of_a_model_as_a_whole_follow_its_output():
    """Where it is compiled; an output that is equal, or a module that is judged, leaves them findings of their own."""
    gradient = beyond("fc.weight", "gradient")
    assert list(group([beyond("", "output"), gradient])) == [("", "")]
    assert list(group([beyond("", "output", 0.0), gradient])) == [("fc", "")]
    assert list(group([beyond("norm", "output"), beyond("", "output"), gradient])) == [
        ("norm", ""),
        ("", ""),
        ("fc", ""),
    ]


def test_a_module_whose_input_has_another_shape_is_not_judged():
    """The reference's input could not take its place."""
    parts = [beyond("pool", "input", float("inf")), beyond("pool", "output"), beyond("conv", "output")]
    assert list(group(parts)) == [("pool", "input"), ("conv", "")]


def test_another_shape_is_reported_once():
    """What follows has it, too; behind a tensor of the same shape, another one is a difference of its own."""
    inf, calls = float("inf"), {name: {"torch": Call(name, name, 0, "", (), (), 1, 1, (0, 1))} for name in "abcd"}
    parts = [("a", "output", inf), ("b", "input", inf), ("b", "output", inf), ("c", "output", 0.0), ("d", "input", inf)]
    found = [
        Difference(Event({}, "training", name, part, calls[name]), size, 0.1, 1.0, ()) for name, part, size in parts
    ]
    found += [beyond("b.weight", "gradient"), beyond("a.weight", "gradient"), beyond("b.running_mean", "statistic")]
    assert list(group(found)) == [("a", ""), ("d", "input")]


def test_the_first_difference_of_sides_whose_calls_have_other_numbers():
    """Sides run their modules in another order, or more of them, so that a number is another module's."""
    records, gradient = [], np.arange(6.0).reshape(2, 3)
    for number, factor in ((3, 1.0), (5, 2.0)):
        record = empty("torch", "fp32", {})
        record.passes["training"] = [Call(f"training/{number}", "act", 0, "ReLU", (), (), 1, 1, (0, 1))]
        record.add(f"training/{number}/din0", factor * gradient)
        record.add(f"training/{8 - number}/din0", np.zeros((1, number)))
        records.append(record)
    calls = {title: record.passes["training"][0] for title, record in zip(("torch", "paddle"), records)}
    event = Event(
        {title: f"{call.key}/din0" for title, call in calls.items()}, "training", "act", "input gradient", calls
    )
    (finding,) = first_beyond([Difference(event, 5.0, 0.1, 5.0, ())], *records)
    assert finding.modules == ("act",) and "shape" not in finding.cause


@pytest.mark.parametrize(
    "precision, part, agrees",
    [("fp32", "din0", True), ("fp32", "out0", False), ("fp64", "din0", False), ("fp64", "out0", False)],
)
def test_gradients_in_fp32_of_modules_that_agree_alone(precision, part, agrees):
    """Rounding crosses kinks of activations in the passes as they are."""
    values, records = np.arange(1.0, 7.0).reshape(2, 3), []
    for factor in (1.0, 1.01, 1.0):
        record = empty("torch", precision, {})
        record.passes["training"] = [Call("training/0", "act", 0, "ReLU", (), (), 1, 1, (0, 1))]
        for key in ("in0", "out0", "dout0", "din0"):
            record.add(f"training/0/{key}", (factor if key == part else 1.0) * values)
        records.append(record)
    reference, natural, alone = records
    matched, titles = Match({}, {}, (), (), {}), ("torch", "mindspore")
    proofs, modules = {"torch": reference, "mindspore": natural}, {"torch": reference, "mindspore": alone}
    assert judge(titles, matched, proofs, modules, {"torch": reference._replace(precision="fp32")}).agrees == agrees


def test_two_biases_beside_one_differ_from_the_second_update_on():
    one = Source(("bias_ih", "bias_hh"), (("sum",),), "gates")
    matched = Match({"bias": one}, {}, (), (), {})
    late, early = (
        Difference(Event({}, stage, "", "loss", {}), 1.0, 0.1, 1.0, ()) for stage in ("update 2", "update 1")
    )
    assert _is_of_biases([late], matched) and not _is_of_biases([late], matched._replace(tensors={}))
    assert not _is_of_biases([early, late], matched) and not _is_of_biases([], matched)


def test_the_lines_between_two_calls():
    def call(name, span, *sites):
        return Call(f"training/{name}", name, 0, "Linear", (), sites, 1, 1, span)

    model, own = call("", (0, 9)), call("b", (5, 6), "net.py:12", "main.py:1")
    for earlier, first in (("net.py:10", "net.py:10-12"), ("other.py:10", "net.py:12"), (None, "net.py:12")):
        before = call("a", (1, 4), *([earlier] if earlier else []))  # without a site: a package's code has called it
        assert _lines_since_last(own, [model, before, own]) == (first, "main.py:1")
    assert _lines_since_last(call("b", (5, 6)), [model, own]) == ()


def test_what_is_not_finite_has_no_other_shape():
    finding = Finding(("conv",), ("", ""), "output", np.inf, 0.1, "it is not finite", "", "", ())
    assert "its output is not finite\n" in str(finding)
    assert "its output has another shape\n" in str(finding._replace(cause="the shape is (2,) instead of (3,)"))


def test_what_is_accepted():
    finding = Finding(
        ("bn", "bn2"), ("", ""), "statistic", 1.0, 0.1, "", "", "running-variance, batch-norm-momentum", ()
    )
    both = {"running-variance", "batch-norm-momentum"}
    assert _is_accepted(finding, {"bn", "bn2"}) and _is_accepted(finding, both)
    assert not _is_accepted(finding, {"bn"}) and not _is_accepted(finding, {"running-variance"})
    assert not _is_accepted(finding._replace(fact=""), both)


def test_what_is_accepted_hides_nothing_that_it_does_not_explain():
    conv = Finding(("conv",), ("", ""), "output", 1.0, 0.1, "", "", "", ())
    output = Difference(Event({"torch": "out"}, "evaluation", "", "output", {}), 0.1, 0.0, 1.0, ())
    judged = Judged(("torch", "paddle"), Match({}, {}, (), (), {}), [output], [], [], [conv])
    assert judged._replace(is_explained=True).agrees and not judged._replace(is_explained=False).agrees
    assert not judged._replace(is_explained=True, frozen=["conv.weight"]).agrees


def test_modules_whose_place_the_reference_can_take():
    """Neither a module of another shape, nor the model itself, which is all that a compiled one has."""
    conv, loss, model = (
        Finding((name,), ("", ""), "output", 1.0, 0.1, "", "", "", ()) for name in ("conv", "loss", "")
    )
    judged = Judged(("torch", "paddle"), Match({}, {}, (), (), {}), [], [], [conv], [loss])
    assert judged.suspects() == {"conv", "loss"}
    for other in (model, conv._replace(relative=np.inf)):
        assert judged._replace(findings=[conv, other]).suspects() == set()


def test_a_gradient_whose_terms_cancel_has_more_room_in_16_bits():
    """Twenty times as much rounding in fp32 as usual; less than usual takes nothing away."""
    reference, rounded = empty("torch", "fp64", {}), empty("torch", "fp32", {})
    found = []
    for name, error in (("a", 1e-7), ("b", 2e-8), ("c", 2e-6)):
        key = f"update 1/gradient/{name}"
        reference.add(key, np.ones(3))
        rounded.add(key, np.ones(3) + error)
        found.append(Difference(Event({"torch": key}, "update 1", name, "gradient", {}), 0.1, 0.0, 1.0, ()))
    excess = _excess(found, reference, rounded)
    np.testing.assert_allclose([excess[name] for name in "abc"], [1, 1, 20], rtol=1e-6)


def test_tensors_that_an_exporter_has_left_out_are_named_with_the_remedy():
    matched = Match({}, {}, (), ("conv.bias",), {})
    for side, end in (("paddle", ""), ("onnx", "; exporters leave out biases of 0, unless with optimize=False")):
        assert f"\nnot in {side}: conv.bias{end}\n" in str(Judged(("torch", side), matched, [], [], [], []))
