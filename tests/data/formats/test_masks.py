"""Masks of every PNG type, invalid masks, the scan before a run, and the labels and colors of Cityscapes."""

import hashlib
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageDraw

from zoo.data.errors import BadSample, UserError
from zoo.data.formats import masks

pytestmark = pytest.mark.filterwarnings(r"ignore:::PIL\.")  # pytest resets the filter of data/formats/headers.py
RAMP = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8)


def save(path, pixels, mode=None, **keys):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = (
        pixels
        if isinstance(pixels, Image.Image)
        else Image.fromarray(pixels, mode)
        if mode
        else Image.fromarray(pixels)
    )
    image.save(path, **{"format": "PNG", **keys})
    return str(path)


def with_palette(values, bits=8):
    """Return an image with a palette whose colors are unrelated to the indices."""
    image = Image.fromarray(values.astype(np.uint8), "P")
    image.putpalette(np.random.default_rng(0).integers(0, 256, 3 * 2**bits).astype(np.uint8).tobytes())
    return image


def chunk(name, content):
    """Encode a chunk of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def save_gray(path, values, bits):
    """Save a gray PNG of few bits, which stores the values themselves."""

    rows = b"".join(
        b"\0" + np.packbits(np.unpackbits(row[:, None], axis=1)[:, 8 - bits :].ravel()).tobytes() for row in values
    )
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    return str(path)


def invalid(path, label_map=None):
    with pytest.raises(masks.InvalidMask) as caught:
        masks.read_values(path) if label_map is None else masks.read_labels(path, label_map)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_gray_levels_of_8_and_16_bits_are_the_values(tmp_path):
    for name, pixels in (("a.png", RAMP), ("b.png", RAMP.astype(np.uint16))):
        labels = masks.read_values(save(tmp_path / name, pixels))
        assert np.array_equal(labels, RAMP) and labels.dtype == np.uint8
    assert Image.open(tmp_path / "b.png").mode == "I;16"
    assert np.array_equal(masks.read_values(save(tmp_path / "c.png", RAMP, transparency=3)), RAMP)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_indices_of_a_palette_are_the_values_and_not_its_colors(bits, tmp_path):
    values = np.random.default_rng(1).integers(0, 2**bits, (6, 9)).astype(np.uint8)
    path = save(tmp_path / "m.png", with_palette(values, bits), bits=bits)
    with open(path, "rb") as file:
        assert file.read(26)[24:] == bytes([bits, 3])  # bit depth and color type in the header
    assert np.array_equal(masks.read_values(path), values)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_colors_are_refused_with_the_remedy(mode, tmp_path):
    path = save(tmp_path / "m.png", Image.new(mode, (8, 6)))
    assert f"mode {mode}" in invalid(path) and "8-bit gray PNG" in invalid(path) and "palette" in invalid(path)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_gray_of_few_bits_is_refused_as_ambiguous(bits, tmp_path):
    path = save_gray(tmp_path / "m.png", RAMP % 2**bits, bits)
    assert np.asarray(Image.open(path)).max() in (1, 255)  # a reader would see scaled values or none
    assert "gray of less than 8 bits" in invalid(path)


def test_other_contents_of_a_png_file(tmp_path):
    assert "JPEG" in invalid(save(tmp_path / "m.png", RAMP, format="JPEG"))
    assert "65535" in invalid(save(tmp_path / "n.png", np.full((3, 4), 65535, np.uint16)))


@pytest.mark.parametrize(
    "content, reason",
    [
        (None, "no such file"),
        (b"", "the file is empty"),
        (b"hello" * 40, "not an image of a supported format"),
    ],
)
def test_unreadable_files_are_bad_samples_but_not_invalid_masks(content, reason, tmp_path):
    path = tmp_path / "m.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadSample) as caught:
        masks.read_values(str(path))
    assert str(caught.value) == reason and not isinstance(caught.value, masks.InvalidMask)


def test_masks_of_class_indices_hold_classes_and_255(tmp_path):
    values = np.array([[0, 1], [2, 255]], np.uint8)
    labels = masks.read_labels(save(tmp_path / "m.png", values), masks.class_indices(3))
    assert np.array_equal(labels, values) and labels.dtype == np.uint8
    message = invalid(str(tmp_path / "m.png"), masks.class_indices(2))
    assert "holds the value 2;" in message and "0 to 1 for the 2 classes and 255" in message


@pytest.mark.parametrize("value", [34, 100, 254, 255])
def test_other_values_than_ids_of_cityscapes_are_refused(value, tmp_path):
    message = invalid(save(tmp_path / "m.png", np.array([[7, value]], np.uint8)), masks.cityscapes_ids())
    assert f"holds the value {value};" in message and "ids 0 to 33" in message and "labelTrainIds" in message


def test_sizes_of_image_and_mask():
    masks.check_sizes((40, 30), (40, 30))
    with pytest.raises(masks.InvalidMask, match="image has 40 x 30 pixels, its mask 20 x 15; make the mask"):
        masks.check_sizes((40, 30), (20, 15))
    with pytest.raises(masks.InvalidMask, match="its mask 30 x 40; one of them is rotated"):
        masks.check_sizes((40, 30), (30, 40))


def write_pairs(root, *values, split="train", size=(6, 8)):
    """Write gray images and masks filled with these values, half and half for a tuple, and return the pairs."""
    pairs = []
    for number, value in enumerate(values):
        left, right = value if isinstance(value, tuple) else (value, value)
        mask = np.full(size, left, np.uint8)
        mask[:, size[1] // 2 :] = right
        save(root / f"{split}/images/{number:03d}.png", np.zeros(size, np.uint8))
        save(root / f"{split}/masks/{number:03d}.png", mask)
        pairs.append((f"{split}/images/{number:03d}.png", f"{split}/masks/{number:03d}.png"))
    return pairs


def user_error(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    return str(caught.value)


def test_evenly_spread_masks_are_counted(tmp_path):
    pairs = write_pairs(tmp_path, *range(11))
    (stats,) = masks.scan(str(tmp_path), [pairs], 3)
    assert [mask.path for mask in stats] == [str(tmp_path / f"train/masks/{number:03d}.png") for number in (0, 5, 10)]
    assert [np.flatnonzero(mask.counts).tolist() for mask in stats] == [[0], [5], [10]]
    assert [mask.counts.sum() for mask in stats] == [48] * 3
    assert len(masks.scan(str(tmp_path), [pairs], 40)[0]) == 11
    assert [mask.path[-7:] for mask in masks.scan(str(tmp_path), [pairs], 1)[0]] == ["000.png"]


def test_pixels_of_every_class_and_ignored_ones(tmp_path):
    stats = masks.scan(str(tmp_path), [write_pairs(tmp_path, (0, 1), (1, 255), 3)], 9)[0]
    assert masks.validate(stats, masks.class_indices(5), 5).tolist() == [24, 48, 0, 48, 0, 24]
    stats = masks.scan(str(tmp_path), [write_pairs(tmp_path, (7, 26), (0, 33), split="val")], 9)[0]
    labels = masks.validate(stats, masks.cityscapes_ids(), 19)
    assert np.flatnonzero(labels).tolist() == [0, 13, 18, 19] and set(labels[[0, 13, 18, 19]]) == {24}


@pytest.mark.parametrize("values", [[(0, 255), (0, 255)], [0, 255], [(0, 255), 0, 0], [(0, 255), (0, 1)]])
def test_black_and_white_masks(values, tmp_path):
    message = user_error(masks.scan, str(tmp_path), [write_pairs(tmp_path, *values)], 9)
    assert "masks/000.png" in message and "black-and-white" in message and "write 1 instead" in message
    assert masks.scan(str(tmp_path), [write_pairs(tmp_path, *values)], 9, True)


@pytest.mark.parametrize("values", [[0, 0], [255, 255], [(1, 255)], [(0, 1), 255]])
def test_masks_that_are_not_black_and_white(values, tmp_path):
    assert masks.scan(str(tmp_path), [write_pairs(tmp_path, *values)], 9)


def test_only_the_header_of_an_image_is_read(tmp_path):
    """The stream handles an image with truncated pixels."""
    pairs = write_pairs(tmp_path, 0, 1)
    save(tmp_path / pairs[0][0], np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8))
    content = (tmp_path / pairs[0][0]).read_bytes()
    (tmp_path / pairs[0][0]).write_bytes(content[:60])
    assert len(masks.scan(str(tmp_path), [pairs], 9)[0]) == 2


def test_damaged_files_are_left_to_the_stream_unless_none_can_be_read(tmp_path):
    pairs = write_pairs(tmp_path, 0, 1, 2)
    (tmp_path / pairs[0][1]).write_bytes(b"")
    (tmp_path / pairs[1][0]).unlink()
    assert [mask.path[-7:] for mask in masks.scan(str(tmp_path), [pairs], 9)[0]] == ["002.png"]
    (tmp_path / pairs[2][1]).write_bytes(b"x")
    message = user_error(masks.scan, str(tmp_path), [pairs], 9)
    assert "000.png" in message and "2 others" in message


# md5 of id, train id, color and name of every label, a line each, as printed by cityscapesScripts 2.3.0
# (cityscapesscripts/helpers/labels.py): `7 0 128,64,128 road`; labels with train id 255 or -1 are not evaluated.
OFFICIAL = "32a1d8ad9877604dd6cb8b7bee9587ef"
OFFICIAL_COLORS = {label.name: label.color for label in masks.EVALUATED}


def min_distance(colors):
    """Return the smallest distance of two colors in RGB."""
    colors = colors.astype(float)
    distances = np.linalg.norm(colors[:, None] - colors[None], axis=-1)
    return distances[~np.eye(len(colors), dtype=bool)].min()


def test_the_labels_are_those_of_the_official_scripts():
    lines = []
    for number, name, train_id, color in masks.LABELS:
        shown = 255 if train_id is None and number >= 0 else number if train_id is None else train_id
        lines.append(f"{number} {shown} {','.join(map(str, color))} {name}")
    assert hashlib.md5("\n".join(lines).encode()).hexdigest() == OFFICIAL


def test_the_table_maps_ids_to_train_ids_in_their_order():
    expected = np.full(256, 255)
    for label in masks.EVALUATED:
        expected[label.id] = label.train_id
    assert np.array_equal(masks.TRAIN_IDS, expected) and masks.TRAIN_IDS.dtype == np.uint8
    assert [label.train_id for label in masks.EVALUATED] == list(range(19))
    assert tuple(OFFICIAL_COLORS) == masks.TRAIN_CLASSES


def test_official_colors_for_official_names_anywhere():
    colors = masks.class_colors(masks.TRAIN_CLASSES)
    assert colors.shape == (19, 3) and colors.dtype == np.uint8
    assert list(map(tuple, colors)) == list(OFFICIAL_COLORS.values())
    mixed = masks.class_colors(("cat", "car", "dog", "road"))
    assert tuple(mixed[1]) == OFFICIAL_COLORS["car"] and tuple(mixed[3]) == OFFICIAL_COLORS["road"]
    many = masks.class_colors(masks.TRAIN_CLASSES + tuple(f"own {label}" for label in range(20))).astype(float)
    assert np.linalg.norm(many[:19, None] - many[None, 19:], axis=-1).min() > 60


@pytest.mark.parametrize("count, min_expected", [(2, 255), (20, 80), (254, 30)])
def test_other_colors_differ_clearly_from_each_other_and_from_black_and_white(count, min_expected):
    colors = masks.class_colors([f"class {label}" for label in range(count)])
    assert colors.shape == (count, 3) and colors.dtype == np.uint8
    assert min_distance(np.concatenate([colors, [[0, 0, 0], [255, 255, 255]]])) >= min_expected


def test_colors_are_deterministic_and_do_not_change_when_classes_are_added():
    few, many = masks.class_colors(["a", "b", "c"]), masks.class_colors(["a", "b", "c", "d", "e"])
    assert np.array_equal(few, many[:3]) and np.array_equal(many, masks.class_colors(["v", "w", "x", "y", "z"]))
    assert masks.class_colors([]).shape == (0, 3)
    assert masks.class_colors(["same"] * 1000).shape == (1000, 3)


@pytest.mark.parametrize(
    "levels, message",
    [
        ([7, 8, 11, 255], "0, 1, 2, 3 by index, and 7, 8, 11, 255 by level"),  # as optipng and pngquant write gray
        ([0, 255], "0, 1 by index, and 0, 255 by level"),
        ([0, 1, 2, 3], None),
    ],
)
def test_a_palette_of_gray_levels_is_refused_unless_it_says_the_same(levels, message, tmp_path):
    values = np.arange(len(levels), dtype=np.uint8).repeat(6).reshape(len(levels), 6)
    image = Image.fromarray(values, "P")
    image.putpalette([level for level in levels for _ in "rgb"])
    path = save(tmp_path / "x.png", image)
    if message:
        assert message in invalid(path)
    else:
        assert np.array_equal(masks.read_values(path), values)


def test_one_color_in_a_palette_says_that_indices_are_classes(tmp_path):
    image = Image.fromarray(RAMP % 3, "P")
    image.putpalette([9, 9, 9, 8, 8, 8, 7, 7, 7, 200, 0, 0])
    assert np.array_equal(masks.read_values(save(tmp_path / "x.png", image)), RAMP % 3)


def areas(values, side=96):
    """Return a mask of ellipses with these values on a background of the first."""
    image, rng = Image.new("L", (side, side), values[0]), np.random.default_rng(3)
    for number in range(12):
        (left, top), size = rng.integers(0, side * 3 // 4, 2), rng.integers(side // 6, side // 2, 2)
        box = (left, top, left + int(size[0]), top + int(size[1]))
        ImageDraw.Draw(image).ellipse(box, fill=values[number % len(values)])
    return image


def blended(image, way):
    if way == "JPEG":
        image.save(buffer := io.BytesIO(), "JPEG", quality=85)
        return Image.open(buffer)
    return image.resize((120, 120), way)


@pytest.mark.parametrize("way", [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, "JPEG"])
@pytest.mark.parametrize("values", [(0, 255), (0, 90, 200), tuple(range(0, 200, 11))])
def test_values_that_are_blends_of_others_are_refused(values, way, tmp_path):
    pairs = write_pairs(tmp_path, (0, 1), size=(120, 120))
    save(tmp_path / pairs[0][1], areas(values).resize((120, 120), Image.Resampling.NEAREST))
    masks.scan(str(tmp_path), [pairs], 9, True)
    save(tmp_path / pairs[0][1], blended(areas(values, 120 if way == "JPEG" else 96), way))
    message = user_error(masks.scan, str(tmp_path), [pairs], 9, True)
    assert "masks/000.png: holds 0 (" in message and "other values; values along borders are blends" in message


def test_random_values_and_thin_lines_are_no_blends(tmp_path):
    rng, image = np.random.default_rng(0), Image.new("L", (120, 120))
    for number in range(60):
        ImageDraw.Draw(image).line(rng.integers(0, 120, 4).tolist(), fill=number % 12)
    assert not masks.look(save(tmp_path / "a.png", image), "a").soft
    assert not masks.look(save(tmp_path / "b.png", rng.integers(0, 19, (64, 64), np.uint8)), "b").soft


COLORS = [(0, 0, 0), (192, 0, 0), (64, 128, 0), (128, 0, 128)]


def palettes(root, *palettes):
    """Write a mask of three values for each palette, a list of colors, and return the pairs."""
    pairs = write_pairs(root, *[(0, 1)] * len(palettes))
    for (_, mask), colors in zip(pairs, palettes):
        image = Image.fromarray(RAMP % 3, "P")
        image.putpalette([level for color in colors for level in color])
        save(root / mask, image)
    return pairs


def test_a_color_with_two_indices_is_refused(tmp_path):
    """As convert, oxipng and pngquant number the colors of each file anew."""
    black, red, green, violet = COLORS
    pairs = palettes(tmp_path, [black, red, green, violet], [black, red, violet], [violet, red, black])
    message = user_error(masks.scan, str(tmp_path), [pairs], 9)
    assert "masks/002.png: the color (128, 0, 128) has index 0 in the palette, but 2 in " in message
    assert "masks/001.png: a program such as convert" in message
    masks.scan(str(tmp_path), [pairs[:2]], 9)
    user_error(masks.scan, str(tmp_path), [pairs[:2], pairs[2:]], 9)  # of the other split


def test_an_index_with_two_colors_in_palettes_of_the_used_ones_alone_is_refused(tmp_path):
    """Where every mask has one class beside the background, all classes get the same index."""
    black, red, green, violet = COLORS
    pairs = palettes(tmp_path, [black, red, green], [black, violet, (9, 9, 0), black, black])
    message = user_error(masks.scan, str(tmp_path), [pairs], 9)
    assert "masks/001.png: index 1 has the color (128, 0, 128) in the palette, but (192, 0, 0) in " in message


@pytest.mark.parametrize(
    "of_masks",
    [
        ([*COLORS[:2], COLORS[1], COLORS[0]], [*COLORS[:2], COLORS[1]]),  # repeated within one palette
        (COLORS, [COLORS[0], (1, 2, 3), (4, 5, 6)]),
        (COLORS, [*COLORS, COLORS[3]]),
    ],
)
def test_colors_of_palettes_may_repeat_and_differ(of_masks, tmp_path):
    masks.scan(str(tmp_path), [palettes(tmp_path, *of_masks)], 9)
