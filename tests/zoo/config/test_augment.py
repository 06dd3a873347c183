"""data.augment in a recipe: read, written and read again, and errors that name its line."""

from tests.zoo.config.recipe_files import SMALL, build, message_of, values, write
from zoo.config import loader
from zoo.config.convert import plain
from zoo.run.cli import FIND

LIST = "[multi_scale_crop, horizontal_flip, {rand_augment: {n: 2, m: 9}}, {color_jitter: {brightness: 0.4}}]"
RECIPE = SMALL.replace("name: kinetics\n", f"name: kinetics\n  augment: {LIST}\n  mixup: 0.2\n")


def test_a_resolved_recipe_can_be_read_again(tmp_path):
    config, resolved = build(tmp_path, RECIPE)
    assert [step.name for step in config.data.augment.steps] == [
        "multi_scale_crop",
        "horizontal_flip",
        "rand_augment",
        "color_jitter",
    ]
    text = loader.render(resolved)
    again, resolved_again = loader.build(loader.read(write(tmp_path, text, "again.yaml")), FIND)
    assert again == config and values(resolved_again) == values(resolved)
    assert plain(config.data.augment)[2] == {"rand_augment": {"n": 2, "m": 9}}


def test_overrides_replace_the_list_and_differences_show_it(tmp_path):
    _, before = build(tmp_path, RECIPE)
    config, after = build(tmp_path, RECIPE, "data.augment=[{grayscale: {p: 0.2}}]")
    assert str(config.data.augment.steps[0]) == "grayscale(p=0.2)"
    (line,) = loader.differences(before, after)
    assert line.endswith("-> [{'grayscale': {'p': 0.2}}]")
    assert build(tmp_path, RECIPE, "data.augment=null")[0].data.augment is None


def test_errors_name_the_line_and_the_key(tmp_path):
    place = f"{tmp_path / 'r.yaml'}:5: data.augment: "
    for text, message in (
        (RECIPE.replace("n: 2", "k: 2"), "rand_augment: k: unknown option; there are: n, m, interpolation, fill"),
        (
            RECIPE.replace("rand_augment", "randaugment"),
            "there is no augmentation 'randaugment'; there are: ",
        ),
        (RECIPE.replace("  mixup: 0.2", "  flip: false"), "horizontal_flip mirrors, which data.flip=false rules out"),
    ):
        assert message_of(build, tmp_path, text).startswith(place + message)
