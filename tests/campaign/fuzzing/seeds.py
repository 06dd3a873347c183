"""Valid files, by reader, from which mutations start: small ones of every form that the reader knows."""

import base64
import io
import json
import pickle
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
from PIL import Image

from tests.helpers import clips, journals, packs
from tests.helpers.paths import GOLDEN
from tests.zoo.weights import face_models
from zoo.data.formats import recordio
from zoo.data.packs import manifest
from zoo.models import load_spec

Files = Mapping[str, bytes]  # content by path

ARRAYS = {
    "conv1.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2),
    "fc.weight": np.ones((3, 2), np.float16),
    "fc.bias": np.zeros(3, np.float64),
    "steps": np.array(7),
}
SIZE = 12  # pixels of images


def pth() -> list[Files]:
    import torch
    import torch._subclasses.schema_check_mode
    import torch.nested._internal.nested_tensor  # otherwise imported for the first file of a nested tensor

    tensors = {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    shared = {"a": tensors["conv1.weight"], "b": tensors["conv1.weight"][0].T, "c": torch.ones(2, dtype=torch.bfloat16)}
    meta = {"CLASSES": ("road", "car"), "PALETTE": [[0, 0, 0], [1, 2, 3]], "epoch": 3}
    contents = [tensors, shared, {"state_dict": tensors, "meta": meta, "optimizer": {"param_groups": [{"lr": 0.1}]}}]
    found = [{"a.pth": _saved(content, zipped=zipped)} for content in contents for zipped in (True, False)]
    return [*found, {"a.pth": _saved({"state_dict_softmax_fc": {"weight": tensors["fc.weight"]}}, zipped=True)}]


def _saved(content: object, zipped: bool) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def pdparams() -> list[Files]:
    nested = {"state_dict": {name: (name, array) for name, array in ARRAYS.items()}, "epoch": 3}
    pickles = [pickle.dumps(content, protocol) for content in (ARRAYS, nested) for protocol in (2, 4, 5)]
    return [{"a.pdparams": content} for content in [*_golden("paddle_*.pdparams"), *pickles]]


def ckpt() -> list[Files]:
    return [{"a.ckpt": content} for content in _golden("mindspore_*.ckpt")]


def safetensors() -> list[Files]:
    from safetensors.numpy import save

    record = {"model": "resnet", "arch": '{"depth": 50}', "data": '{"size": 224}', "classes": '["a", "b"]'}
    return [{"a.safetensors": save(dict(ARRAYS), metadata)} for metadata in (None, record)]


def paddle_variables() -> list[Files]:
    """The folder of a pass of PLSC, with the classes of two ranks."""
    rows = [face_models.variable(np.ones((2, count), np.float32)) for count in (3, 2)]
    whole = {
        "conv2d_0.w_0": face_models.variable(np.ones((4, 3, 3, 3), np.float32)),
        "fc_0.b_0": face_models.variable(np.ones(5, np.float16)),
        **{f"dist@arcface@rank@{rank:05d}.w_0": content for rank, content in enumerate(rows)},
        "meta.json": json.dumps({"pretrain_nranks": 2, "num_classes": 5}).encode(),
    }
    return [whole, {"conv2d_0.w_0": whole["conv2d_0.w_0"], "final_fc_w_0": rows[0]}]


def weights() -> list[Files]:
    """Whole models under the names of several projects, for their conversion."""
    from safetensors.numpy import save

    small = {"depth": 18, "num_classes": 2, "width": 2}
    models = []
    for model, options in (("resnet", small), ("tsm", small), ("arcface", {**small, "embedding": 3, "size": 20})):
        spec = load_spec(model)
        shapes = spec.shapes(spec.Arch(**options))
        models.append({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    counters = {
        name.replace("running_mean", "num_batches_tracked"): np.array(1) for name in models[0] if "mean" in name
    }
    return [{"a.safetensors": save(tensors)} for tensors in (*models, {**models[0], **counters})]


def checkpoint() -> list[Files]:
    """The folder of a run with a checkpoint, and with moving averages in another."""
    from zoo.run.checkpoint import save_checkpoint, save_evaluation

    recipe = "model: {name: resnet}\ndata: {name: imagenet, size: 32}\n"
    facts = {"classes": ["a", "b"], "epoch": 1.5, "recipe": recipe, "global_batch": 8, "weights": "from seed 1"}
    tensors = {"fc.weight": np.ones((2, 3), np.float32), "optimizer/momentum/fc.weight": np.ones((2, 3), np.float32)}
    found: list[Files] = []
    for more in ({}, {"ema/fc.weight": np.zeros((2, 3), np.float32)}):
        with tempfile.TemporaryDirectory() as run:
            (Path(run) / "checkpoints").mkdir()
            save_checkpoint(run, 10, {**tensors, **more}, facts, 3)
            save_evaluation(run, 10, {"accuracy": 0.5}, True, 3)
            links = {f"checkpoints/{name}": b"step-00000010\n" for name in ("last", "best")}
            found.append({**_folder(Path(run)), **links})
    return found


def face_bin() -> list[Files]:
    images = [packs.encoded_image(value, 4) for value in range(8)]
    arrays = [np.frombuffer(image, np.uint8) for image in images]
    flags = [True, False, True, False]
    contents = [pickle.dumps((images, flags), protocol) for protocol in (2, 3, 4)]
    return [{"lfw.bin": content} for content in [*contents, pickle.dumps((arrays, flags), 4)]]


def face_pack() -> list[Files]:
    """Packs with identity records, with 64-bit labels, and without either."""
    identities = [[packs.encoded_image(40 * identity + number, 4) for number in range(2)] for identity in range(3)]
    plain = {number: packs.content(image, number // 2) for number, image in enumerate(chain(*identities))}
    marked = {0: packs.content(identities[0][0] + packs.MAGIC * 3, 0), 1: packs.content(identities[1][0], 1, 2.0)}
    found: list[Files] = []
    for payloads in (packs.face_pack(identities), packs.face_pack(identities, width=8), plain, marked):
        with tempfile.TemporaryDirectory() as folder:
            packs.write(Path(folder), payloads)
            found.append({**_folder(Path(folder)), "property": b"3,112,112\n"})
    return found


def prepared() -> list[Files]:
    """Prepared clips in a pack, and images with masks."""
    image = packs.encoded_image(1, 4)
    found: list[Files] = []
    for media, form, masks in (("image", "pack", []), ("video", "frames", []), ("pair", "pack", [b"m1", b"m2", b"m3"])):
        per_sample = 2 if masks or form == "frames" else 1
        payloads = [recordio.record(recordio.image_payload(0, number, image)) for number in range(3 * per_sample)]
        offsets = np.cumsum([0, *map(len, payloads[:-1])]).astype(np.int64)
        columns = {name: np.zeros((3, *shape), dtype) for name, (dtype, shape) in manifest.COLUMNS.items()}
        columns |= {"records": np.full(3, per_sample, np.int32), "first_record": np.arange(3) * per_sample}
        columns |= {"frames": np.full(3, 2 if form == "frames" else 1, np.int32), "label": np.array([0, 1, 0])}
        info = manifest.Info("k400", media, form, "/data", ("a", "b"), {"train": (0, 2), "val": (2, 3)}, ("jpeg",),
                             ("a.rec",), "", "img_{:05d}.jpg" if form == "frames" else "")  # fmt: skip
        content = manifest.encode(manifest.Manifest(info, columns, [b"a/1", b"b/2", b"c/3"], masks, offsets))
        found.append({manifest.NAME: content, "a.rec": b"".join(payloads)})
    return found


def images() -> list[Files]:
    """Every format, as small as it gets."""
    pixels = packs.pixels(200, SIZE)
    turned = Image.Exif()
    turned[0x0112] = 6
    forms: list[tuple[str, str, dict]] = [
        ("JPEG", "RGB", {}),
        ("JPEG", "RGB", {"progressive": True, "exif": turned}),
        ("JPEG", "L", {"restart_marker_blocks": 1}),
        ("JPEG", "CMYK", {}),
        ("PNG", "RGB", {}),
        ("PNG", "P", {}),
        ("PNG", "RGBA", {"exif": turned}),
        ("PNG", "L", {"compress_level": 0}),
        ("PNG", "1", {}),
        ("BMP", "RGB", {}),
        ("GIF", "P", {"save_all": True, "append_images": [Image.new("P", (SIZE, SIZE))]}),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}),
        ("TIFF", "RGB", {"compression": "jpeg"}),
        ("TIFF", "L", {"compression": None}),
        ("TIFF", "1", {"compression": "group4"}),
        ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {"lossless": True}),
        ("PPM", "RGB", {}),
    ]
    found = []
    for form, mode, options in forms:
        content = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(content, form, **options)
        found.append({f"a.{form.lower()}": content.getvalue()})
    deep = io.BytesIO()
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(deep, "PNG")
    return [*found, {"a.png": deep.getvalue()}]


def masks() -> list[Files]:
    """Gray levels of 8 and 16 bits, and palettes of all depths."""
    values = packs.pixels(0, SIZE)[..., 1] % 3
    contents = [_png(Image.fromarray(values)), _png(Image.fromarray(values.astype(np.uint16)))]
    for bits in (1, 2, 4, 8):
        indexed = Image.fromarray(values & (1 << bits) - 1).convert("P")
        indexed.putpalette([10, 20, 30, 40, 50, 60])
        contents.append(_png(indexed, bits=bits))
    return [{"a.png": content} for content in contents]


def _png(image: Image.Image, **options: int) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", **options)
    return content.getvalue()


def videos() -> list[Files]:
    """Containers and codecs that are read in different ways."""
    import decord  # noqa: F401 -- otherwise imported for the first mutated file that needs it

    found: list[Files] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, codec, options in (
            ("a.mp4", "libx264", {}),
            ("b.mp4", "libx264", {"bf": "0", "gop": 2}),
            ("c.mp4", "libx265", {}),
            ("a.avi", "mpeg4", {}),
            ("b.avi", "libx264", {"bf": "0"}),
            ("a.webm", "libvpx-vp9", {}),
            ("a.mkv", "libx264", {}),
            ("a.mpg", "mpeg1video", {}),
        ):
            clips.encode(Path(folder) / name, clips.numbered(5, 32, 16), codec, **options)
            found.append({name: (Path(folder) / name).read_bytes()})
    return found


def lists() -> list[Files]:
    """Lists of samples, of faces, of pairs and of class names, in all their forms."""
    clip_list = b"".join(b"a/%d.jpg %d\n" % (number, number % 3) for number in range(6))
    frame_list = b"".join(b"b b/%d 30 %d\n" % (number, number % 3) for number in range(4))
    lfw = b"10\t1\n" + b"name\t1\t2\n" * 10 + b"name\t1\tother\t1\n" * 10
    imagenet = {"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"], "2": ["n01484850", "shark"]}
    names = [
        b"one\ntwo\nthree\n",
        b"0 one\n1 two\n2 three\n",
        b"n01440764 tench\nn01443537 goldfish\nn01484850 shark\n",
    ]
    documents = [imagenet, ["a", "b", "c"], {"a": 0, "b": 1, "c": 2}, {"0": "a", "1": "b", "2": "c"}]
    classes = [*names, *(json.dumps(document).encode() for document in documents)]
    return [
        {
            "train.list": (clip_list, frame_list, "\ufeffa.jpg 1\r\n".encode())[number % 3],
            "faces.txt": b"a/0.jpg 0\na/1.jpg\t1\n",
            **dict.fromkeys(("name/name_0001.jpg", "name/name_0002.jpg", "other/other_0001.jpg"), b""),
            "pairs.txt": lfw if number % 2 else b"name/name_0001.jpg name/name_0002.jpg 1\n" * 10,
            "classes.json" if number > 2 else "classes.txt": content,
        }
        for number, content in enumerate(classes)
    ]


def label_tables() -> list[Files]:
    """Tables of labels of images and videos, in all their forms."""
    tables = {
        "a.csv": (b"id,tags\n1,a|b\n2,\n", b"id,x,y,age\n1,1,0,30\n2,0,1,31\n", b"file,label\n1.jpg,cat\n2.jpg,dog\n"),
        "d.csv": (b'id,tags,split\n1,"[""a"", ""b""]",train\n2,"[\'a\', \'c\']",val\n',),
        "b.tsv": (b"video\tstart\tend\tlabel\na\t0\t1.5\tx\na\t2\t3\ty\n", b"1.jpg\tcat\n2.jpg\tdog\n"),
        "c.jsonl": (b'{"file_name": "1.jpg", "labels": ["a", "b"]}\n{"file_name": "2.jpg", "label": 1}\n',),
    }
    files = dict.fromkeys(("1.jpg", "2.jpg", "a.mp4"), b"")
    return [{**files, name: content} for name, contents in tables.items() for content in contents]


def annotations() -> list[Files]:
    """Those of Kinetics-400 and of Something-Something V2."""
    rows = b"label,youtube_id,time_start,time_end,split\n" + b"".join(
        b'"%s",id%d,%d,%d,train\n' % (name, number, number, number + 10)
        for number, name in enumerate((b"air drumming", b"massaging, hands", b"zumba"))
    )
    clips = {f"{split}/air drumming/id0_000000_000010.jpg": b"" for split in ("train", "val")}
    entries = [{"id": str(number), "label": "a b", "template": "Putting [a]"} for number in range(3)]
    lists = {name: json.dumps(entries).encode() for name in ("train.json", "validation.json")}
    return [
        {"train.csv": rows, "val.csv": rows, **clips},
        {**lists, "labels.json": b'{"Putting a": "0", "Taking a": "1"}'},
    ]


RECIPE = b"""\
seed: 1
model: {name: resnet, depth: 18}
data:
  name: imagenet
  size: 32
  mean: [0.5, 0.5, 0.5]
optim:
  lr: 0.1
train:
  epochs: 2
  save_every: 3 epochs
"""


def recipes() -> list[Files]:
    """Recipes of all tasks, some of which change another."""
    others = [
        b"model: {name: tsm}\ndata: {name: kinetics, flip_pairs: [[0, 1]]}\ntrain: {steps: 9}\n",
        b"model: {name: deeplabv3plus}\ndata: {name: cityscapes, crop: [64, 64]}\ntrain:\n  steps: 9\n",
        b"model: {name: arcface}\ndata: {name: faces, verification: [lfw.bin]}\ntrain: {steps: 9}\n",
    ]
    augment = b"base: base.yaml\ndata:\n  augment: [horizontal_flip, {rand_augment: {m: 5}}]\n"
    schedule = b"base: base.yaml\noptim: &o {schedule: step, milestones: [1]}\ntrain: {ema: 0.9}\n"
    changes = [{"recipe.yaml": text, "base.yaml": RECIPE} for text in (augment, schedule)]
    return [{"recipe.yaml": RECIPE}, *({"recipe.yaml": text} for text in others), *changes]


def labels() -> list[Files]:
    """Labels of a picture of 12 x 12 by every program."""
    Image.init()  # otherwise called for the first mutated bitmap of no usual format
    corners = [[2, 2], [9, 2], [9, 8], [2, 8]]
    flat, size = [number for corner in corners for number in corner], {"width": SIZE, "height": SIZE}
    shape = {"label": "car", "points": corners, "shape_type": "polygon"}
    of_labelme = {"shapes": [shape], "imagePath": "1.png", "imageData": None, "imageWidth": SIZE, "imageHeight": SIZE}
    masks_of_coco = [[flat], {"counts": [20, 5, 119], "size": [SIZE, SIZE]}]
    of_coco = {
        "images": [{"id": 1, "file_name": "1.png", **size}],
        "annotations": [{"image_id": 1, "category_id": 3, "segmentation": mask, "area": 9} for mask in masks_of_coco],
        "categories": [{"id": 3, "name": "car"}],
    }
    strokes = [0, 0, 0, 24, 57, 27, 252, 96, 17, 255, 219, 0, 143, 252]  # tests/commands/test_import_tools.py
    values = [{"points": corners, "polygonlabels": ["car"]}, {"rle": strokes, "brushlabels": ["dog"]}]
    result = [{"value": value, "original_width": 3, "original_height": 2} for value in values]
    of_studio = [{"id": 1, "data": {"image": "/data/1.png"}, "annotations": [{"result": result}]}]
    xs, ys = map(list, zip(*corners))
    regions = [
        {
            "shape_attributes": {"name": "polygon", "all_points_x": xs, "all_points_y": ys},
            "region_attributes": {"a": "b"},
        }
    ]
    packed = base64.b64encode(zlib.compress(_png(Image.fromarray(np.eye(4, dtype=bool)))))
    objects = [
        {"classTitle": "car", "geometryType": "polygon", "points": {"exterior": corners, "interior": [corners[:3]]}},
        {"classTitle": "car", "geometryType": "bitmap", "bitmap": {"data": packed.decode(), "origin": [2, 3]}},
    ]
    return [
        *({"a.json": json.dumps(content).encode()} for content in (of_labelme, of_coco, of_studio)),
        {"a.json": json.dumps({"1.png9": {"filename": "1.png", "regions": regions}}).encode()},
        {
            "data.yaml": b"names: [car, dog]",
            "images/1.png": b"",
            "labels/1.txt": b"1 .1 .1 .9 .1 .9 .9\n0 .5 .5 .1 .1\n",
        },
        {
            "meta.json": b'{"classes": [{"title": "car"}]}',
            "d/ann/1.png.json": json.dumps({"size": size, "objects": objects}).encode(),
        },
    ]


def tables() -> list[Files]:
    """Tables of two images each."""
    import pyarrow
    from pyarrow import ipc, parquet

    images = [{"bytes": _png(Image.fromarray(packs.pixels(number, SIZE))), "path": "a.png"} for number in range(2)]
    names = {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    written = {"huggingface": json.dumps({"info": {"features": names}})}
    table = pyarrow.table({"image": images, "label": [0, 1]}).replace_schema_metadata(written)
    files = [io.BytesIO() for _ in range(3)]
    parquet.write_table(table, files[0])
    for file, create in zip(files[1:], (ipc.new_stream, ipc.new_file)):
        with create(file, table.schema) as writer:
            writer.write_table(table)
    return [{name: file.getvalue()} for name, file in zip(("a.parquet", "a.arrow", "a.arrow"), files)]


def archives() -> list[Files]:
    """Archives with two images each: tar, with a link, and zip, compressed or not."""
    images, tar = {f"train/cat/{number}.jpg": bytes([number]) * 700 for number in range(2)}, io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, content in images.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("train/cat/link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "0.jpg"
        archive.addfile(link)
    found: list[Files] = [{"a.tar": tar.getvalue()}]
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", method) as archive:
            for name, content in images.items():
                archive.writestr(name, content)
        found.append({"a.zip": packed.getvalue()})
    return found


def events() -> list[Files]:
    train = {"event": "train", "time": 110.0, "step": 10, "epoch": 0.5, "lr": 0.1, "loss": 2.0, "grad_norm": None,
             "scale": 1.0, "skipped": 0, "samples_per_s": 90.0, "step_ms": {"p50": 1.0, "p90": 2.0, "p99": 3.0},
             "data_wait_fraction": 0.1}  # fmt: skip
    speed = {"event": "speed", "time": 300.0, "drop": 5, "count": 10, "samples": 40, "seconds": 2.0,
             "samples_per_s": 20.0,
             "step_ms": {"all": [1.0, 2.0], "p50": 1.0, "p90": 2.0, "p99": 2.0}, "data_wait_fraction": 0.0}  # fmt: skip
    run = [journals.full_load(), journals.full_begin(), train, *journals.evaluations(0.1, 0.7)]
    run += [{"event": "save", "time": 170.0, "step": 10, "path": "checkpoints/step-00000010"}]
    resumed = [
        *run,
        {"event": "resume", "time": 400.0, "step": 10, "path": "x", "global_batch": 4},
        speed,
        journals.end(20),
    ]
    old = (GOLDEN / "old_run" / "events.jsonl").read_bytes()
    contents = [b"".join(json.dumps(event).encode() + b"\n" for event in journal) for journal in (resumed, run)]
    return [{"events.jsonl": content} for content in [*contents, old]]


def logs() -> list[Files]:
    """Logs of AI-Rank, published and our own, and of DLPerf."""
    texts = (b"load_data, checksum:37724b19b6e5d41f9f147936d60b3c29", b"training begin",
             b"eval_accuracy:0.5, total_epoch_cnt:1.000000", b"eval_accuracy:0.71, total_epoch_cnt:2.000000",
             b"target_quality_time:12.5sec", b"training_time:13.5sec", b"avg_ips:81.25images/sec")  # fmt: skip
    good = b"".join(b"AI-Rank-log %d.5 %s\n" % (1700000000 + second, text) for second, text in enumerate(texts))
    dlperf = b"".join(b"Iteration: %d/120 speed: 350.5 samples/sec loss 2.5 time %d.5\n" % (n, n) for n in range(30))
    return [{"a.log": content} for content in (good, dlperf, good.replace(b"\n", b"\r\n"))]


def _golden(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(GOLDEN.glob(pattern))]


def _folder(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder by relative path; links are left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.is_symlink() for part in (path, *path.parents))
    }


Seeds = Callable[[], list[Files]]
