"""Models as their outlines describe them, small ones of which it is known what belongs to what."""

import numpy as np
import pytest

from zoo.data.errors import UserError
from zoo.parity.mapping import Match, Source, convert, load, revert, save
from zoo.parity.match import match
from zoo.parity.outline import Outline, Tensor
from zoo.parity.record import Call


def layer(path, kind, shape=None, out=(2, 8, 4, 4), **roles):
    """A layer whose weight has a shape, and its bias the first length of it, unless roles say otherwise."""
    if shape is not None:
        roles = {"weight": shape, "bias": shape[:1]} | roles
    return path, kind, {role: shape for role, shape in roles.items() if shape is not None}, out


def norm(path, channels, out=(2, 8, 4, 4)):
    return layer(path, "BatchNorm2d", (channels,), out, running_mean=(channels,), running_var=(channels,))


def outline(*layers, uncalled=(), registered=None, own=None):
    """The outline of a model that calls layers in this order, each within the modules of its path.

    Args:
        registered: paths in the order of their registration, if it is not that of the calls.
        own: shapes of the parameters of the model itself, by role.
    """
    names = {path: (kind, roles) for path, kind, roles, _ in (*layers, *uncalled)}
    tensors = [Tensor(role, shape, "", "Net", role, True) for role, shape in (own or {}).items()]
    for path in registered or names:
        kind, roles = names[path]
        tensors += [
            Tensor(f"{path}.{role}", shape, path, kind, role, "running" not in role) for role, shape in roles.items()
        ]
    calls, shapes, within, position = list[Call](), dict[str, tuple[int, ...]](), list[int](), 0

    def leave(depth):
        nonlocal position
        while len(within) > depth:
            position += 1
            index = within.pop()
            calls[index] = calls[index]._replace(span=(calls[index].span[0], position))

    for path, kind, _, out in layers:
        tokens = path.split(".")
        for depth in range(len(tokens) + 1):
            name = ".".join(tokens[:depth])
            if depth < len(within) and (calls[within[depth]].name != name or depth == len(tokens)):
                leave(depth)
            if depth == len(within):
                position += 1
                occurrence = sum(call.name == name for call in calls)
                call_kind = kind if depth == len(tokens) else "Block"
                within.append(len(calls))
                key = f"{name}#{occurrence}"
                calls.append(Call(key, name, occurrence, call_kind, (), (), 1, 1, (position, -1)))
        for index in within:
            shapes[f"{calls[index].key}/out0"] = out
    leave(0)
    return Outline("torch", tensors, calls, shapes)


def names(result: Match):
    """Sources by name, where they are tensors as they are."""
    assert all(len(source.names) == 1 and not source.steps for source in result.tensors.values())
    return {name: source.names[0] for name, source in result.tensors.items()}


def weights(result: Match):
    return {
        name.removesuffix(".weight"): source.names[0].removesuffix(".weight")
        for name, source in result.tensors.items()
        if name.endswith(".weight")
    }


def test_the_outline_of_a_test():
    calls = outline(layer("a.b", "Conv2d", (8, 3, 3, 3)), layer("a.c", "ReLU"), layer("d", "Linear", (5, 8))).calls
    spans = {call.name: call.span for call in calls}
    assert spans == {"": (1, 10), "a": (2, 7), "a.b": (3, 4), "a.c": (5, 6), "d": (8, 9)}
    assert [call.occurrence for call in outline(layer("a", "ReLU"), layer("a", "ReLU")).calls] == [0, 0, 1]


STEM = (layer("conv", "Conv2d", (8, 3, 3, 3)), norm("bn", 8), layer("act", "ReLU"))


def test_equal_names():
    model = outline(*STEM, layer("fc", "Linear", (5, 8), (2, 5)))
    result = match(model, model)
    assert names(result) == {tensor.name: tensor.name for tensor in model.tensors}
    assert {source.rule for source in result.tensors.values()} == {"name"}
    assert result.missing == result.unused == () and result.ambiguous == {}
    assert result.calls == {(call.name, 0): (call.name, 0) for call in model.calls}


def test_dropout_between_the_same_modules():
    """Its rates are compared; where only one of the models has it, nothing is."""
    reference = outline(
        layer("drop", "Dropout"),
        layer("a", "Linear", (8, 8)),
        layer("a_drop", "Dropout"),
        layer("b", "Linear", (8, 8)),
        layer("c", "Linear", (8, 8)),
        layer("act", "ReLU"),
        layer("last", "Dropout"),
    )
    other = outline(
        layer("input.drop", "Dropout"),
        layer("layers.0", "Dense", (8, 8)),
        layer("layers.1", "ReLU"),
        layer("layers.2", "Dropout"),
        layer("layers.3", "Dense", (8, 8)),
        layer("layers.4", "Dropout"),
        layer("layers.5", "Dense", (8, 8)),
        layer("layers.6", "Dropout"),
    )
    calls = match(reference, other).calls
    found = {b: a for (b, _), (a, _) in calls.items() if a in ("drop", "a_drop", "last")}
    assert found == {"input.drop": "drop", "layers.2": "a_drop", "layers.6": "last"}


def test_other_names_and_blocks():
    """Blocks end at other places; one side has an activation as a module that the other calls as a function."""
    reference = outline(
        *STEM,
        layer("layer1.0.conv1", "Conv2d", (8, 8, 3, 3)),
        norm("layer1.0.bn1", 8),
        layer("layer1.1.conv1", "Conv2d", (8, 8, 3, 3)),
        norm("layer1.1.bn1", 8),
        layer("layer1.1.relu", "ReLU"),
        layer("layer1.2", "Conv2d", (8, 8, 1, 1)),
        layer("fc", "Linear", (5, 8), (2, 5)),
    )
    other = outline(
        layer("stem.0", "Conv", (8, 3, 3, 3)),
        norm("stem.1", 8),
        layer("stages.0.conv", "Conv", (8, 8, 3, 3)),
        norm("stages.0.norm", 8),
        layer("stages.0.act", "ReLU"),
        layer("stages.1.conv", "Conv", (8, 8, 3, 3)),
        norm("stages.1.norm", 8),
        layer("stages.1.act", "ReLU"),
        layer("stages.2.conv", "Conv", (8, 8, 1, 1)),
        layer("head", "Dense", (5, 8), (2, 5)),
    )
    result = match(reference, other)
    assert weights(result) == {
        "stem.0": "conv",
        "stem.1": "bn",
        "stages.0.conv": "layer1.0.conv1",
        "stages.0.norm": "layer1.0.bn1",
        "stages.1.conv": "layer1.1.conv1",
        "stages.1.norm": "layer1.1.bn1",
        "stages.2.conv": "layer1.2",
        "head": "fc",
    }
    assert {source.rule for source in result.tensors.values()} == {"order"}
    assert len(result.tensors) == len(other.tensors) and not result.missing and not result.unused
    assert result.calls["stages.1.act", 0] == ("layer1.1.relu", 0) and ("stages.0.act", 0) not in result.calls
    assert result.calls["", 0] == ("", 0)
    assert not {"stem", "stages.0", "stages.1"} & {name for name, _ in result.calls}  # of different extent


@pytest.mark.parametrize(
    "shapes, are_transposed", [([(6, 12), (12, 12)], True), ([(12, 6), (12, 12)], False), ([(12, 12)], True)]
)
def test_square_matrices_of_functions_lie_as_the_others(shapes, are_transposed):
    layers = [layer(f"fc{i}", "Linear", (12, min(shape)), (2, 12), bias=None) for i, shape in enumerate(shapes)]
    tensors = [Tensor(f"dense{i}.w", shape, f"dense{i}", "", "w", True) for i, shape in enumerate(shapes)]
    function = Outline("jax", tensors, [Call("0", "", 0, "function", (), (), 1, 1, (1, 2))], {})
    result = match(outline(*layers), function)
    last = f"dense{len(shapes) - 1}.w"
    assert result.missing == () and result.tensors[last].names == (f"fc{len(shapes) - 1}.weight",)
    assert (result.tensors[last].steps == (("transpose", [1, 0]),)) == are_transposed


def test_the_one_parameter_that_is_left_on_both_sides():
    ours = outline(*STEM, own={"queries": (10, 8)})
    theirs = outline(*STEM, uncalled=(layer("query_embed", "Embedding", (10, 8), bias=None),))
    assert match(ours, theirs).tensors["query_embed.weight"].names == ("queries",)
    two = outline(*STEM, own={"queries": (10, 8), "others": (10, 8)})
    assert match(two, theirs).missing == ("query_embed.weight",)


def test_blocks_of_the_same_layers():
    def block(name, *parts):
        return [
            layer(f"{name}.{parts[0]}", "Conv2d", (8, 8, 3, 3)),
            norm(f"{name}.{parts[1]}", 8),
            layer(f"{name}.{parts[2]}", "ReLU"),
        ]

    reference = outline(*STEM, *block("layer1.0", "conv1", "bn1", "relu"), *block("layer1.1", "conv1", "bn1", "relu"))
    result = match(reference, outline(*STEM, *block("s.0.c", "0", "1", "2"), *block("s.1.c", "0", "1", "2")))
    assert result.calls["s", 0] == ("layer1", 0)
    assert ("s.0.c", 0) not in result.calls and ("s.0", 0) not in result.calls  # two for one
    result = match(reference, outline(*STEM, *block("s0", "0", "1", "2"), *block("s1", "0", "1", "2")))
    assert result.calls["s0", 0] == ("layer1.0", 0) and result.calls["s1", 0] == ("layer1.1", 0)


def test_a_head_that_begins_with_the_pooling():
    """Beside one behind it, which gets another tensor; two that begin alike are a pair."""
    out = 2, 8
    pooled = (
        layer("pool", "AvgPool", out=out),
        layer("head.norm", "Norm", (8,), out),
        layer("head.fc", "Linear", (5, 8), (2, 5)),
    )
    reference = outline(*STEM, *pooled)
    result = match(reference, outline(*STEM, layer("head.pool", "AvgPool", out=out), *pooled[1:]))
    assert result.calls["head.pool", 0] == ("pool", 0) and ("head", 0) not in result.calls
    assert match(reference, outline(*STEM, *pooled)).calls["head", 0] == ("head", 0)


def dense(path):
    return layer(path, "Linear", (8, 8), (2, 8))


def test_numbers_that_count_other_things_are_no_equal_names():
    """The third layer of one is the second of the other, which calls activations as functions."""
    reference = outline(dense("net.0"), layer("net.1", "ReLU", out=(2, 8)), dense("net.2"), dense("net.4"))
    result = match(reference, outline(dense("net.0"), dense("net.1"), dense("net.2")))
    assert weights(result) == {"net.0": "net.0", "net.1": "net.2", "net.2": "net.4"}


def test_layers_that_one_side_lacks():
    reference = outline(*STEM, layer("fc", "Linear", (5, 8), (2, 5)))
    result = match(reference, outline(STEM[0], layer("extra", "Conv2d", (8, 8, 1, 1)), reference_head()))
    assert weights(result) == {"conv": "conv", "classifier": "fc"}
    assert result.missing == ("extra.weight", "extra.bias")
    assert result.unused == ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")


def reference_head():
    return layer("classifier", "Linear", (5, 8), (2, 5))


def test_one_of_three_equal_layers_is_asked_for():
    """Which of them is missing cannot be known, unless names say it."""
    reference = outline(STEM[0], dense("a"), dense("b"), dense("c"), reference_head())
    result = match(reference, outline(STEM[0], dense("x"), dense("y"), reference_head()))
    assert result.ambiguous["x.weight"] == ("a.weight", "b.weight")
    assert result.ambiguous["y.bias"] == ("b.bias", "c.bias")
    assert set(result.missing) == {"x.weight", "x.bias", "y.weight", "y.bias"}
    result = match(reference, outline(STEM[0], dense("x.a"), dense("x.c"), reference_head()))
    assert weights(result) == {"conv": "conv", "x.a": "a", "x.c": "c", "classifier": "classifier"}


def test_branches_in_another_order():
    """The shortcut of a residual block is called first on one side, last on the other."""
    reference = outline(
        STEM[0],
        layer("b.conv1", "Conv2d", (4, 8, 1, 1)),
        layer("b.conv2", "Conv2d", (16, 4, 1, 1)),
        layer("b.down", "Conv2d", (16, 8, 1, 1)),
    )
    other = outline(
        STEM[0],
        layer("m.short", "Conv2d", (16, 8, 1, 1)),
        layer("m.a", "Conv2d", (4, 8, 1, 1)),
        layer("m.b", "Conv2d", (16, 4, 1, 1)),
    )
    assert weights(match(reference, other)) == {
        "conv": "conv",
        "m.short": "b.down",
        "m.a": "b.conv1",
        "m.b": "b.conv2",
    }


def test_a_normalization_belongs_to_the_layer_before_it():
    """Both normalizations have 16 channels, but the convolutions differ."""
    convolutions = [layer("b.conv2", "Conv2d", (16, 4, 1, 1)), layer("b.down.0", "Conv2d", (16, 8, 1, 1))]
    branches = [(convolutions[0], norm("b.bn2", 16)), (convolutions[1], norm("b.down.1", 16))]
    reference = outline(STEM[0], *branches[0], *branches[1])
    other = outline(
        STEM[0],
        layer("m.a", "Conv2d", (16, 8, 1, 1)),
        norm("m.b", 16),
        layer("m.c", "Conv2d", (16, 4, 1, 1)),
        norm("m.d", 16),
    )
    result = match(reference, other)
    assert not result.ambiguous
    assert weights(result) == {"conv": "conv", "m.a": "b.down.0", "m.b": "b.down.1", "m.c": "b.conv2", "m.d": "b.bn2"}


def test_branches_of_equal_shape_are_asked_for_unless_names_tell():
    def block(*order, name="{}"):
        shapes = {"conv1": (8, 4, 1, 1), "conv2": (16, 8, 1, 1), "down": (16, 8, 1, 1)}
        return outline(*(layer(name.format(key), "Conv2d", shapes[key]) for key in order))

    reference = block("conv1", "conv2", "down")
    result = match(reference, block("down", "conv1", "conv2", name="m.{}x"))
    assert result.ambiguous["m.downx.weight"] == result.ambiguous["m.conv2x.weight"] == ("conv2.weight", "down.weight")
    assert weights(match(reference, block("down", "conv1", "conv2", name="m.{}"))) == {
        "m.conv1": "conv1",
        "m.conv2": "conv2",
        "m.down": "down",
    }


def test_registered_in_another_order_than_called():
    reference = outline(dense("a"), dense("b"), registered=("b", "a"))
    assert weights(match(reference, outline(dense("x"), dense("y")))) == {"x": "a", "y": "b"}


def test_layers_that_are_called_several_times():
    reference = outline(STEM[0], dense("cell"), dense("cell"), dense("cell"), dense("out"))
    other = outline(STEM[0], dense("rnn.unit"), dense("rnn.unit"), dense("rnn.unit"), dense("last"))
    result = match(reference, other)
    assert weights(result) == {"conv": "conv", "rnn.unit": "cell", "last": "out"}
    assert result.calls["rnn.unit", 2] == ("cell", 2)


def test_parameters_of_the_model_itself():
    own = {"cls_token": (1, 1, 8), "pos_embed": (1, 5, 8)}
    result = match(outline(STEM[0], own=own), outline(STEM[0], own={"pos": (1, 5, 8), "class_token": (1, 1, 8)}))
    assert names(result)["pos"] == "pos_embed" and names(result)["class_token"] == "cls_token"


def test_tables_of_attention_and_the_index_that_one_side_stores():
    """Two tables have the same shape; the index is no parameter, so a model without a source keeps its own."""

    def attention(path, **roles):
        own = layer(path, "Attention", None, (2, 8), **roles)
        return own, dense(f"{path}.qkv"), dense(f"{path}.proj")

    index = {"relative_position_index": (2401,)}
    table = {"relative_position_bias_table": (169, 3)}
    reference = outline(*attention("a", **table), *attention("b", **table))
    other = outline(*attention("x.m", **table, **index), *attention("y.m", **table, **index))
    other = other._replace(tensors=[t._replace(is_trained=t.shape != (2401,)) for t in other.tensors])
    result = match(reference, other)
    assert names(result)["x.m.relative_position_bias_table"] == "a.relative_position_bias_table"
    assert names(result)["y.m.relative_position_bias_table"] == "b.relative_position_bias_table"
    assert result.missing == () and result.kept == ("x.m.relative_position_index", "y.m.relative_position_index")
    back = match(other, reference)
    assert len(back.tensors) == len(reference.tensors) and back.missing == back.kept == ()


def test_scales_and_biases_of_other_names():
    """Scales are modules on one side and parameters of the block on the other; k has no bias."""

    def block(name, scales, biases):
        parts = [layer(f"{name}.{part}", "Linear", (8, 8), (2, 8), bias=None) for part in ("q", "k", "v")]
        own = layer(name, "Block", None, (2, 8), **dict.fromkeys(scales, (8,)))
        qkv = layer(f"{name}.qkv", "Linear", (24, 8), (2, 24), bias=None)
        attention = layer(name, "Attention", None, (2, 8), **dict.fromkeys((*scales, *biases), (8,)))
        return (attention, qkv) if biases else (own, *parts)

    def biased(layers):
        roles = {"weight": (8, 8), "bias": (8,)}
        return [(path, kind, roles if path[-2:] in (".q", ".v") else own, out) for path, kind, own, out in layers]

    reference = outline(*block("a", ("gamma_1", "gamma_2"), ("q_bias", "v_bias")))
    other = outline(*biased(block("b", ("lambda_1", "lambda_2"), ())))
    result = match(reference, other)
    assert result.missing == result.unused == () and not result.ambiguous
    found = {name: source.names[0] for name, source in result.tensors.items() if "weight" not in name}
    assert found == {
        "b.lambda_1": "a.gamma_1",
        "b.lambda_2": "a.gamma_2",
        "b.q.bias": "a.q_bias",
        "b.v.bias": "a.v_bias",
    }


def test_a_layer_that_is_never_called_keeps_its_place():
    """As the projection of torch.nn.MultiheadAttention, whose weight is used by a function."""
    reference = outline(
        dense("a.norm"), layer("a.attn", "MultiheadAttention", in_proj=(24, 8)), dense("mlp"),
        uncalled=[dense("a.attn.out")], registered=("a.norm", "a.attn", "a.attn.out", "mlp"),
    )  # fmt: skip
    other = outline(dense("n"), layer("qkv", "Linear", in_proj=(24, 8)), dense("proj"), dense("fc"))
    assert weights(match(reference, other)) == {"n": "a.norm", "proj": "a.attn.out", "fc": "mlp"}


@pytest.mark.parametrize(
    "shape, other, steps",
    [
        ((5, 8), (8, 5), (("transpose", [1, 0]),)),
        ((8, 8), (8, 8), ()),
        ((8, 3, 5, 5), (5, 5, 3, 8), (("transpose", [2, 3, 1, 0]),)),
        ((5, 5, 3, 8), (8, 3, 5, 5), (("transpose", [3, 2, 0, 1]),)),
        ((5, 8, 1, 1), (5, 8), (("reshape", [5, 8, 1, 1], [5, 8]),)),
        ((12, 8), (3, 4, 8), (("reshape", [12, 8], [3, 4, 8]),)),
        ((16, 8, 7, 7), (16, 392), (("reshape", [16, 8, 7, 7], [16, 392]),)),
        ((16, 392), (16, 8, 7, 7), (("reshape", [16, 392], [16, 8, 7, 7]),)),
        ((8,), (1, 8, 1, 1), (("reshape", [8], [1, 8, 1, 1]),)),
    ],
)
def test_layouts(shape, other, steps):
    result = match(outline(layer("a", "X", weight=shape)), outline(layer("b", "X", weight=other)))
    assert result.tensors["b.weight"].steps == steps
    array = np.random.default_rng(0).normal(size=shape)
    made = convert(result, {"a.weight": array})["b.weight"]
    assert made.shape == other and np.array_equal(revert(result, {"b.weight": made})["a.weight"], array)


def test_a_transposed_kernel():
    array = np.arange(8 * 3 * 5 * 4).reshape(8, 3, 5, 4)
    result = match(outline(layer("a", "X", weight=(8, 3, 5, 4))), outline(layer("b", "X", weight=(5, 4, 3, 8))))
    assert convert(result, {"a.weight": array})["b.weight"][1, 2, 0, 6] == array[6, 0, 1, 2]


def test_a_mapping_that_is_saved_and_edited(tmp_path):
    reference = outline(STEM[0], dense("a"), dense("b"), dense("c"), reference_head())
    other = outline(STEM[0], dense("x"), dense("y"), reference_head())
    path = str(tmp_path / "mapping.yaml")
    result = match(reference, other)
    save(path, result)
    text = (tmp_path / "mapping.yaml").read_text()
    assert '"conv.weight": "conv.weight"\n' in text
    assert '# "x.weight": one of ["a.weight", "b.weight"]\n' in text
    (tmp_path / "mapping.yaml").write_text(
        text + "x.weight: c.weight\ny.weight: {from: b.weight, steps: [[transpose, [1, 0]]]}\n"
    )
    result = match(reference, other, load(path))
    assert result.tensors["x.weight"] == Source(("c.weight",), (), "given")
    assert result.tensors["y.weight"] == Source(("b.weight",), (("transpose", [1, 0]),), "given")


@pytest.mark.parametrize(
    "given, message",
    [
        ({"con.weight": "conv.weight"}, "no tensor con.weight; did you mean conv.weight?"),
        ({"conv.weight": "fc.weigth"}, "no tensor fc.weigth; did you mean"),
        ({"conv.weight": "bn.weight"}, "conv.weight would have the shape [8], but it has [8, 3, 3, 3]; give steps"),
        (
            {"conv.weight": {"from": "conv.weight", "steps": [["transpose", [1]]]}},
            "conv.weight (axes don't match array); correct its steps",
        ),
        ({"conv.weight": 3}, "conv.weight: give the name of a tensor of the reference, or {from"),
        ({"conv.weight": {"from": "conv.weight", "steps": [["rotate", 0]]}}, "conv.weight: give the name"),
    ],
)
def test_mappings_that_are_refused(given, message):
    with pytest.raises(UserError) as caught:
        match(outline(*STEM), outline(*STEM), given)
    assert message in str(caught.value)


def test_files_that_are_no_mapping(tmp_path):
    for text in ("- a\n", "{", "1: a\n"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(UserError, match="write one line per tensor"):
            load(str(tmp_path / "bad.yaml"))


def attention(path, *parts, width=8):
    return [layer(f"{path}.{part}", "Linear", (width, 8), (2, 5, width)) for part in parts]


def values(model):
    """Random arrays of a model by name."""
    draw = np.random.default_rng(0)
    return {tensor.name: draw.normal(size=tensor.shape) for tensor in model.tensors}


@pytest.mark.parametrize(
    "parts", [("query", "key", "value"), ("k_proj", "v_proj", "q_proj"), ("to_q", "to_k", "to_v"), ("wk", "wq", "wv")]
)
def test_attention_in_one_piece_and_in_three(parts):
    """Three layers in any order are q, k and v by name, and none of them is the projection behind them."""
    whole = outline(
        dense("norm1"),
        layer("attn.qkv", "Linear", (24, 8), (2, 5, 24)),
        *attention("attn", "proj"),
        dense("norm2"),
    )
    split = outline(dense("a"), *attention("mha", *parts, "dense"), dense("b"))
    q, k, v = (next(f"mha.{part}" for part in parts if letter in part.strip("to_")) for letter in "qkv")
    result = match(whole, split)
    assert not result.missing and not result.unused and len(result.tensors) == len(split.tensors)
    arrays = values(whole)
    made = convert(result, arrays)
    for i, path in enumerate((q, k, v)):
        assert result.tensors[f"{path}.weight"].rule == "split"
        assert np.array_equal(made[f"{path}.weight"], arrays["attn.qkv.weight"][8 * i : 8 * i + 8])
    assert np.array_equal(made["mha.dense.weight"], arrays["attn.proj.weight"])
    back = revert(result, made)
    assert back.keys() == arrays.keys() and all(np.array_equal(back[name], arrays[name]) for name in arrays)
    made.pop(f"{k}.bias")
    assert arrays.keys() - revert(result, made).keys() == {"attn.qkv.bias"}

    result, arrays = match(split, whole), values(split)
    made = convert(result, arrays)
    assert result.tensors["attn.qkv.bias"].rule == "fused"
    assert np.array_equal(made["attn.qkv.bias"], np.concatenate([arrays[f"{path}.bias"] for path in (q, k, v)]))
    assert revert(result, made).keys() == arrays.keys()
    assert result.calls["attn", 0] == ("mha", 0)  # the same tensors


def test_attention_in_pieces_of_other_names():
    ours, theirs = attention("a", "query", "key", "value", "out"), attention("b", "wk", "wv", "wq", "wo")
    result = match(outline(*ours), outline(*theirs))
    assert weights(result) == {"b.wq": "a.query", "b.wk": "a.key", "b.wv": "a.value", "b.wo": "a.out"}
    kv = layer("b.kv", "Linear", (16, 8), (2, 5, 16))
    result = match(outline(*ours), outline(*attention("b", "q"), kv, *attention("b", "out")))
    assert result.tensors["b.kv.weight"].names == ("a.key.weight", "a.value.weight")
    assert result.tensors["b.q.weight"] == Source(("a.query.weight",), (), "order")
    result = match(outline(*attention("b", "q"), kv, *attention("b", "out")), outline(*ours))
    assert result.tensors["a.value.weight"].steps == (("split", 0, [8, 8], 1),)


def recurrent(path, kind="LSTM", gates=4, layers=("_l0",), biases=("bias_ih", "bias_hh"), width=8):
    roles = {}
    for part in layers:
        roles |= {f"weight_ih{part}": (gates * width, width), f"weight_hh{part}": (gates * width, width)}
        roles |= {f"{bias}{part}": (gates * width,) for bias in biases}
    return layer(path, kind, out=(2, 5, width), **roles)


def gates_of(path, letters, biases="h"):
    """A cell of Flax: a layer for each gate, of the input and of the state."""
    return [
        layer(f"{path}.{part}{gate}", "Linear", (8, 8), (2, 8), **({} if part in biases else {"bias": None}))
        for part in "hi"
        for gate in letters
    ]


def test_recurrent_layers():
    """Stacked ones on one side, one by one on the other; which weight is the input's is known by its role."""
    reference = outline(
        dense("in"), recurrent("lstm", layers=("_l0", "_l0_reverse", "_l1", "_l1_reverse")), dense("out")
    )
    parts = [recurrent(f"rnn.{i}", layers=("",)) for i in range(4)]
    result = match(reference, outline(dense("a"), *parts, dense("b")))
    assert not result.missing
    assert result.tensors["rnn.1.weight_hh"].names == ("lstm.weight_hh_l0_reverse",)
    assert result.tensors["rnn.2.weight_ih"].names == ("lstm.weight_ih_l1",)


@pytest.mark.parametrize("kind, gates, letters", [("LSTM", "ifgo", "fgio"), ("GRU", "rzn", "nrz")])
def test_gates_in_one_piece_and_in_parts(kind, gates, letters):
    whole, parts = outline(recurrent("rnn", kind, len(gates))), outline(*gates_of("cell", letters, "hi"))
    result, arrays = match(whole, parts), values(whole)
    made = convert(result, arrays)
    for i, gate in enumerate(gates):
        assert np.array_equal(made[f"cell.h{gate}.weight"], arrays["rnn.weight_hh_l0"][8 * i : 8 * i + 8])
        assert np.array_equal(made[f"cell.i{gate}.bias"], arrays["rnn.bias_ih_l0"][8 * i : 8 * i + 8])
    back = revert(result, made)
    assert all(np.array_equal(back[name], arrays[name]) for name in arrays)
    assert not match(parts, whole).missing


def test_two_biases_and_their_sum():
    whole, parts = outline(recurrent("rnn")), outline(*gates_of("cell", "ifgo"))
    arrays = values(whole)
    made = convert(match(whole, parts), arrays)
    assert np.array_equal(made["cell.hf.bias"], (arrays["rnn.bias_ih_l0"] + arrays["rnn.bias_hh_l0"])[8:16])
    back = revert(match(whole, parts), made)
    assert back.keys() == {"rnn.weight_ih_l0", "rnn.weight_hh_l0"}  # the sum has no parts
    arrays, result = values(parts), match(parts, whole)
    made = convert(result, arrays)
    sums = made["rnn.bias_ih_l0"] + made["rnn.bias_hh_l0"]
    assert not result.missing and np.array_equal(
        sums, np.concatenate([arrays[f"cell.h{gate}.bias"] for gate in "ifgo"])
    )


def test_a_cell_in_a_loop():
    """It is called once for each step, and the layer with the same weights once for all of them."""
    whole, steps = outline(dense("in"), recurrent("rnn")), recurrent("loop.cell", layers=("",))
    result = match(whole, outline(dense("a"), *[steps] * 3))
    assert not result.missing and not result.ambiguous
    assert result.tensors["loop.cell.weight_hh"].names == ("rnn.weight_hh_l0",)
    assert ("loop.cell", 0) not in result.calls
    back = match(outline(dense("a"), *[steps] * 3), whole)
    assert not back.missing and not back.ambiguous


def test_a_weight_that_two_layers_share():
    """One side has it once, the other a copy for the output layer, where nothing has a source of its own."""
    embedding = layer("embed", "Embedding", (20, 8), (2, 5, 8), bias=None)
    head = layer("head", "Linear", (20, 8), (2, 5, 20), bias=None)
    tied, untied = (
        outline(embedding, dense("fc"), layer("head", "Linear", out=(2, 5, 20))),
        outline(embedding, dense("fc"), head),
    )
    result = match(tied, untied)
    assert result.tensors["head.weight"] == Source(("embed.weight",), (), "tied") and not result.missing
    assert revert(result, convert(result, values(tied))).keys() == {"fc.weight", "fc.bias"}  # its gradient is their sum
    assert match(untied, tied).unused == ("head.weight",)


def test_features_of_maps_that_are_channels_last():
    def net(maps):
        return outline(layer("conv", "Conv2d", (8, 3, 3, 3), maps), layer("fc", "Linear", (5, 8 * 4 * 6), (2, 5)))

    ours, theirs = net((2, 8, 4, 6)), net((2, 4, 6, 8))
    result, arrays = match(ours, theirs), values(ours)
    made = convert(result, arrays)
    features = np.random.default_rng(1).normal(size=(2, 8, 4, 6))
    expected = features.reshape(2, -1) @ arrays["fc.weight"].T
    assert np.allclose(features.transpose(0, 2, 3, 1).reshape(2, -1) @ made["fc.weight"].T, expected)
    assert np.array_equal(revert(result, made)["fc.weight"], arrays["fc.weight"])
    assert match(ours, ours).tensors["fc.weight"].steps == ()


def test_pooling_of_one_input_to_two_sizes_is_one_call():
    """Its ceil_mode is then found; pooling of other inputs stands somewhere else."""

    def net(pool, given, out):
        conv = [layer(name, "Conv2d", (8, 8, 3, 3)) for name in ("a", "b")]
        made = outline(conv[0], layer(pool, "MaxPool2d", out=out), conv[1])
        return made._replace(shapes={**made.shapes, f"{pool}#0/in0": given})

    ours = net("pool", (2, 8, 8, 8), (2, 8, 4, 4))
    assert match(ours, net("down", (2, 8, 8, 8), (2, 8, 3, 3))).calls[("down", 0)] == ("pool", 0)
    assert ("down", 0) not in match(ours, net("down", (2, 8, 6, 6), (2, 8, 3, 3))).calls


def test_two_loops_beside_two_directions():
    """Each cell is called once per step, all of the first one before the second one."""
    reference = outline(STEM[0], dense("forward"), dense("backward"))
    loops = outline(STEM[0], *3 * [dense("a.cell")], *3 * [dense("b.cell")])
    assert weights(match(reference, loops)) == {"conv": "conv", "a.cell": "forward", "b.cell": "backward"}


def test_biases_of_query_and_value_alone():
    """The key's is 0, or does nothing, since it adds the same to all scores of a query."""
    reference = outline(layer("a.attn.qkv", "Linear", (24, 8)), dense("a.attn.out"))
    parts = layer("b.attn", "Attention", q_bias=(8,), v_bias=(8,))
    other = outline(parts, layer("b.attn.qkv", "Linear", (24, 8), bias=None), dense("b.attn.proj"))
    result, arrays = match(reference, other), values(reference)
    made = convert(result, arrays)
    assert not result.missing and np.array_equal(made["b.attn.q_bias"], arrays["a.attn.qkv.bias"][:8])
    assert np.array_equal(made["b.attn.v_bias"], arrays["a.attn.qkv.bias"][16:])
