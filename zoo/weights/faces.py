"""Nets for faces in other projects: their names, and their class matrices, of which each rank has saved its rows.

    insightface    recognition/arcface_torch: the canonical names. model.pt is a net alone; checkpoint_gpu_<rank>.pt
                   holds the net in `state_dict_backbone` and the rank's rows in `state_dict_softmax_fc`
    plsc           PLSC of Paddle 1: a folder with a file per variable, numbered in the order of creation; classes are
                   the columns of dist@<loss>@rank@<rank>.w_0, or, trained on one GPU, of final_fc_w_0
    plsc2          PLSC of Paddle 2: <name>.pdparams, and the rows in <name>_rank<rank>.pdparams or, of one GPU, with it

Classes follow one another in the order of ranks in all of them, however they are shared out.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from data.errors import UserError
from zoo.models.arcface.spec import BLOCKS, HEAD, Arch
from zoo.weights import files, fluid

CHECKPOINT = re.compile(r"checkpoint_gpu_(\d+)\.pt")
VARIABLE = re.compile(r"(conv2d|batch_norm|prelu|fc)_\d+\.[wb]_\d")
COLUMNS = re.compile(r"dist@.+@rank@(\d+)\.([wb])_0")
ONE_GPU = "final_fc_w_0"
INSIGHTFACE = ((r"^module\.", ""),)
PARTS = {
    "conv2d": {"w_0": "weight"},
    "prelu": {"w_0": "weight"},
    "fc": {"w_0": "weight", "b_0": "bias"},
    "batch_norm": {"w_0": "weight", "b_0": "bias", "w_1": "running_mean", "w_2": "running_var"},
}
BLOCK = (
    ("batch_norm", "bn1"),
    ("conv2d", "conv1"),
    ("batch_norm", "bn2"),
    ("prelu", "prelu"),
    ("conv2d", "conv2"),
    ("batch_norm", "bn3"),
)
SHORTCUT = (("conv2d", "downsample.0"), ("batch_norm", "downsample.1"))
Found = tuple[dict[str, np.ndarray], dict[str, str], list[str]]


def detect(names: Iterable[str]) -> str | None:
    """Which of these projects wrote the names; None if none of them."""
    names = set(names)
    if {"conv2d_0.w_0", "prelu_0.w_0"} <= names:
        return "plsc"
    if "features._mean" in names:
        return "plsc2"
    if names & {"features.running_mean", "module.features.running_mean"}:
        counts = any(name.endswith(".num_batches_tracked") for name in names)
        return "insightface" if counts or "conv1.weight" not in names else "canonical"
    return None


def read(path: str, with_head: bool) -> Found:
    """The tensors by their project's names, metadata, and the files read.

    path: of a folder of PLSC, or of a file as files.read takes them. with_head: join the class matrix, as head.weight,
    out of the files of all ranks beside it; the zoo's own files have it anyway. Raises UserError if one is missing.
    """
    if os.path.isdir(path):
        return _folder(path, with_head)
    folder, name = os.path.split(path)
    if CHECKPOINT.fullmatch(name):
        tensors = files.read_torch(path, "state_dict_backbone")[0]
        rows = _ranks(folder, CHECKPOINT) if with_head else []
        return _joined(
            tensors, [path], rows, lambda file: files.read_torch(file, "state_dict_softmax_fc")[0].get("weight")
        )
    tensors, metadata = files.read(path)
    if not path.endswith(files.PADDLE):
        return tensors, metadata, [path]
    own = tensors.pop(HEAD, None)
    rows = _ranks(folder, re.compile(re.escape(name[: -len(files.PADDLE)]) + r"_rank(\d+)\.pdparams"))
    if with_head and own is not None and not rows:
        return {**tensors, HEAD: own}, {}, [path]
    return _joined(tensors, [path], rows if with_head else [], lambda file: files.read(file)[0].get(HEAD))


def plsc_names(blocks: int) -> dict[str, str]:
    """PLSC's name -> canonical name, for a net of so many blocks; {} if there is none."""
    stages = next((stages for stages in BLOCKS.values() if sum(stages) == blocks), None)
    count: dict[str, int] = dict.fromkeys(PARTS, 0)
    names = {}
    for kind, module in _walk(stages) if stages else ():
        names.update((f"{kind}_{count[kind]}.{old}", f"{module}.{new}") for old, new in PARTS[kind].items())
        count[kind] += 1
    return names


def block_count(names: Iterable[str]) -> int:
    """Of PLSC's names: two convolutions in every block, four shortcuts and the stem are left over."""
    return max(0, sum(re.fullmatch(r"conv2d_\d+\.w_0", name) is not None for name in names) - 5) // 2


def to_insightface(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Canonical tensors of the variant plsc -> of insightface: the same function of a picture in evaluation.

    A slope for every channel; the difference of both epsilons moves into the variances; that of (x - 127.5) / 128 and
    (x - 127.5) / 127.5 into the first convolution.
    """
    moved = np.float32(Arch(variant="plsc").epsilon - Arch().epsilon)
    result = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith("prelu.weight"):
            norm = name[: -len("prelu.weight")] + ("bn1.weight" if name == "prelu.weight" else "bn2.weight")
            result[name] = np.broadcast_to(tensor, tensors[norm].shape)
        elif name.endswith("running_var"):
            result[name] = tensor + moved
    result["conv1.weight"] = tensors["conv1.weight"] * np.float32(127.5 / 128)
    return result


def _walk(stages: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """(kind of layer, canonical module) in the order in which PLSC makes them."""
    yield from (("conv2d", "conv1"), ("batch_norm", "bn1"), ("prelu", "prelu"))
    for number, blocks in enumerate(stages, 1):
        for i in range(blocks):
            for kind, module in BLOCK + (SHORTCUT if i == 0 else ()):
                yield kind, f"layer{number}.{i}.{module}"
    yield from (("batch_norm", "bn2"), ("fc", "fc"), ("batch_norm", "features"))


def _folder(path: str, with_head: bool) -> Found:
    names = sorted(os.listdir(path))
    used = [name for name in names if VARIABLE.fullmatch(name)]
    if "conv2d_0.w_0" not in used:
        raise UserError(
            f"{path} is a folder, but holds no variables of PLSC (conv2d_0.w_0 and so on); give the folder "
            "of one pass, such as 19/ in that of the run, or a file"
        )
    tensors, read_files = {name: fluid.read(os.path.join(path, name)) for name in used}, _paths(path, used)
    if not with_head:
        return tensors, {}, read_files
    biases = [name for name in names if COLUMNS.fullmatch(name) and COLUMNS.fullmatch(name)[2] == "b"]
    if biases:
        raise UserError(
            f"{os.path.join(path, biases[0])}: classes with biases, of PLSC's softmax, are no ArcFace; "
            "leave --head out to take the net alone"
        )
    rows = _ranks(path, COLUMNS) or _paths(path, [ONE_GPU] if ONE_GPU in names else [])
    ranks, classes = _told(path)
    if ranks not in (None, len(rows)):
        raise UserError(
            f"{path}: meta.json tells of {ranks} ranks, but there are the classes of {len(rows)}; copy the "
            "files of all ranks there"
        )
    found = _joined(tensors, read_files, rows, lambda file: fluid.read(file).T)
    if HEAD in found[0] and classes not in (None, len(found[0][HEAD])):
        raise UserError(f"{path}: meta.json tells of {classes} classes, the files hold {len(found[0][HEAD])}")
    return found


def _told(folder: str) -> tuple[int | None, int | None]:
    """Ranks and classes that meta.json tells of."""
    path = os.path.join(folder, "meta.json")
    if not os.path.exists(path):
        return None, None
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        return int(content["pretrain_nranks"]), int(content["num_classes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not as PLSC writes it ({error!r}); copy it again, or remove it") from None


def _ranks(folder: str, pattern: "re.Pattern[str]") -> list[str]:
    """The files of all ranks in their order. Raises UserError if one is missing in between."""
    found = {int(match[1]): match[0] for match in map(pattern.fullmatch, os.listdir(folder or ".")) if match}
    missing = sorted(set(range(len(found))) - set(found))
    if missing:
        raise UserError(
            f"{os.path.join(folder, min(found.values()))}: the file of rank {missing[0]} is missing beside "
            "it; the class matrix needs those of all ranks"
        )
    return _paths(folder, [found[rank] for rank in sorted(found)])


def _joined(
    tensors: dict[str, np.ndarray],
    read_files: list[str],
    rows: list[str],
    read_rows: Callable[[str], np.ndarray | None],
) -> Found:
    """The tensors with the rows of all files as one matrix. Raises UserError if a file has no rows like the others."""
    if not rows:
        return tensors, {}, read_files
    parts = [read_rows(file) for file in rows]
    for file, part in zip(rows, parts):
        if part is None or part.ndim != 2 or part.shape[1] != parts[0].shape[1]:
            raise UserError(
                f"{file} holds no rows of a class matrix"
                + ("" if part is None else f" like those of {rows[0]}: their shapes are {part.shape}, {parts[0].shape}")
            )
    return {**tensors, HEAD: np.concatenate(parts)}, {}, read_files + [file for file in rows if file not in read_files]


def _paths(folder: str, names: Iterable[str]) -> list[str]:
    return [os.path.join(folder, name) for name in names]
