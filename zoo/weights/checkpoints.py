"""Checkpoints of other projects: a file of any model, and those of face recognition models, which are several files.

    insightface    recognition/arcface_torch: model.pt holds a backbone; checkpoint_gpu_<rank>.pt the backbone in
                   `state_dict_backbone` and the rank's rows in `state_dict_softmax_fc`
    plsc           PLSC of Paddle 1: a folder with a file per variable; the columns of the classifier weight are in
                   dist@<loss>@rank@<rank>.w_0 or, of one GPU, in final_fc_w_0
    plsc2          PLSC of Paddle 2: <name>.pdparams; the rows are in <name>_rank<rank>.pdparams or, trained on one GPU,
                   in the same file

In all of them classes follow one another in the order of ranks, whatever their number per rank.
"""

import os
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.models.arcface.spec import HEAD_WEIGHT
from zoo.weights import files, pdparams, pth

CHECKPOINT = re.compile(r"checkpoint_gpu_(\d+)\.pt")
VARIABLE = re.compile(r"(conv2d|batch_norm|prelu|fc)_\d+\.[wb]_\d")
COLUMNS = re.compile(r"dist@.+@rank@(\d+)\.w_0")
CLASS_BIASES = re.compile(r"dist@.+@rank@(\d+)\.b_0")
ONE_GPU_COLUMNS = "final_fc_w_0"


class Checkpoint(NamedTuple):
    """The content of a checkpoint under the names of its project."""

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]
    paths: list[str]  # of all files that were read


def read(path: str, with_head: bool) -> Checkpoint:
    """Read a checkpoint of any model, with the classifier weight of a face recognition model if asked for.

    Args:
        path: A folder of PLSC, or a file that files.read accepts.
        with_head: Join the classifier weight, as head.weight, from the files of all ranks in the same folder. Files of
            this zoo are read with it in any case.
    """
    if os.path.isdir(path):
        return _read_plsc(path, with_head)
    if CHECKPOINT.fullmatch(os.path.basename(path)):
        return _read_insightface(path, with_head)
    if path.endswith(files.PADDLE):
        return _read_plsc2(path, with_head)
    tensors, metadata = files.read(path)
    return Checkpoint(tensors, metadata, [path])


def _read_insightface(path: str, with_head: bool) -> Checkpoint:
    def read_rows(file: str) -> np.ndarray | None:
        return pth.read(file, "state_dict_softmax_fc")[0].get("weight")

    tensors, _ = pth.read(path, "state_dict_backbone")
    rank_files = _rank_files(os.path.dirname(path), CHECKPOINT) if with_head else []
    return _join(tensors, [path], rank_files, read_rows)


def _read_plsc2(path: str, with_head: bool) -> Checkpoint:
    tensors, _ = files.read(path)
    head = tensors.pop(HEAD_WEIGHT, None)
    if not with_head:
        return Checkpoint(tensors, {}, [path])
    folder, name = os.path.split(path)
    rank_files = _rank_files(folder, re.compile(re.escape(name[: -len(files.PADDLE)]) + r"_rank(\d+)\.pdparams"))
    if head is not None and not rank_files:
        return Checkpoint({**tensors, HEAD_WEIGHT: head}, {}, [path])
    return _join(tensors, [path], rank_files, lambda file: files.read(file)[0].get(HEAD_WEIGHT))


def _read_plsc(folder: str, with_head: bool) -> Checkpoint:
    names = sorted(os.listdir(folder))
    variables = [name for name in names if VARIABLE.fullmatch(name)]
    if "conv2d_0.w_0" not in variables:
        raise UserError(
            f"{folder} is a folder without variables of PLSC (conv2d_0.w_0 and so on); give the folder of one pass, "
            "such as 19/ in that of the run, or a file"
        )
    paths = _paths(folder, variables)
    tensors = {name: pdparams.read_variable(path) for name, path in zip(variables, paths)}
    if not with_head:
        return Checkpoint(tensors, {}, paths)
    biases = [name for name in names if CLASS_BIASES.fullmatch(name)]
    if biases:
        raise UserError(
            f"{os.path.join(folder, biases[0])}: a classifier with biases, from PLSC's softmax, is not an ArcFace; "
            "leave --head out to convert the backbone only"
        )
    rank_files = _rank_files(folder, COLUMNS) or _paths(folder, [ONE_GPU_COLUMNS] if ONE_GPU_COLUMNS in names else [])
    ranks, classes = _read_meta(folder)
    if ranks not in (None, len(rank_files)):
        raise UserError(
            f"{folder}: meta.json lists {ranks} ranks, but the folder holds the classes of {len(rank_files)}; copy the "
            "files of all ranks there"
        )
    checkpoint = _join(tensors, paths, rank_files, lambda file: pdparams.read_variable(file).T)
    head = checkpoint.tensors.get(HEAD_WEIGHT)
    if head is not None and classes not in (None, len(head)):
        raise UserError(
            f"{folder}: meta.json lists {classes} classes, but the files hold {len(head)}; copy the folder again"
        )
    return checkpoint


def _read_meta(folder: str) -> tuple[int | None, int | None]:
    """Return the numbers of ranks and classes in meta.json, None without such a file."""
    path = os.path.join(folder, "meta.json")
    if not os.path.exists(path):
        return None, None
    with parsing(f"{path} is not as PLSC writes it", "copy it again, or remove it"):
        content = regular.load_json(path)
        return int(content["pretrain_nranks"]), int(content["num_classes"])


def _rank_files(folder: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the files of all ranks in rank order. Raises UserError if one in between is missing."""
    matches = map(pattern.fullmatch, os.listdir(folder or "."))
    names = {int(match[1]): match[0] for match in matches if match}
    missing = sorted(set(range(len(names))) - set(names))
    if missing:
        raise UserError(
            f"{os.path.join(folder, min(names.values()))}: the file of rank {missing[0]} is missing in this folder; "
            "copy the files of all ranks there, or leave --head out"
        )
    return _paths(folder, [names[rank] for rank in sorted(names)])


def _join(
    tensors: dict[str, np.ndarray],
    paths: list[str],
    rank_files: list[str],
    read_rows: Callable[[str], np.ndarray | None],
) -> Checkpoint:
    """Add the rows of all ranks as one classifier weight. Raises UserError if a file has no rows of the same width."""
    if not rank_files:
        return Checkpoint(tensors, {}, paths)
    parts: list[np.ndarray] = []
    for file in rank_files:
        rows = read_rows(file)
        if rows is None or rows.ndim != 2:
            raise UserError(f"{file} holds no rows of a classifier weight; copy it again, or leave --head out")
        if parts and rows.shape[1] != parts[0].shape[1]:
            raise UserError(
                f"{file} and {rank_files[0]} hold rows of different widths: their shapes are {rows.shape} and "
                f"{parts[0].shape}; copy the files of one run"
            )
        parts.append(rows)
    return Checkpoint(
        {**tensors, HEAD_WEIGHT: np.concatenate(parts)}, {}, paths + [file for file in rank_files if file not in paths]
    )


def _paths(folder: str, names: Iterable[str]) -> list[str]:
    return [os.path.join(folder, name) for name in names]
