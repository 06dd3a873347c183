"""Sizes and terms of the data sets, as their owners or well-known copies state them."""

from typing import NamedTuple


class Copy(NamedTuple):
    """A published copy of a data set: its samples by split, and where the numbers are from."""

    name: str
    counts: dict[str, int]
    source: str


# Videos vanish from YouTube, so every copy of Kinetics has another size.
COPIES = {
    "k400": (
        Copy("CVDF", {"train": 246_534, "val": 19_906}, "FiftyOne's documentation of kinetics-400"),
        Copy("OpenMMLab", {"train": 240_436, "val": 19_796}, "mmaction2, tools/data/kinetics/README.md"),
    ),
    "ssv2": (Copy("official", {"train": 168_913, "val": 24_777}, "Qualcomm's page of Something-Something V2"),),
    "imagenet": (Copy("official", {"train": 1_281_167, "val": 50_000}, "Russakovsky et al. 2015, arXiv:1409.0575"),),
    "cityscapes": (Copy("official", {"train": 2_975, "val": 500}, "Cordts et al. 2016, arXiv:1604.01685"),),
    "faces": (),
    "folder": (),
}
# Identities and images of insightface's packs, from its list of data sets (recognition/_datasets_/README.md).
FACE_PACKS = {
    10_572: Copy("CASIA-WebFace", {"train": 490_623}, "insightface"),
    85_742: Copy("MS1M-V2", {"train": 5_822_653}, "insightface"),
    93_431: Copy("MS1M-V3", {"train": 5_179_510}, "insightface"),
    360_232: Copy("Glint360K", {"train": 17_091_657}, "insightface"),
}
# Pairs of insightface's verification sets, by file name.
VERIFICATION_PAIRS = {
    "lfw.bin": 6_000,
    "agedb_30.bin": 6_000,
    "cfp_fp.bin": 7_000,
    "cfp_ff.bin": 7_000,
    "calfw.bin": 6_000,
    "cplfw.bin": 6_000,
}
TERMS = {
    "k400": "Annotations: CC BY 4.0, Google LLC. The videos belong to those who uploaded them to YouTube.",
    "ssv2": "Research license of Qualcomm, which must be accepted before the download; no redistribution.",
    "imagenet": "Terms of access of image-net.org: non-commercial research and education only; no redistribution.",
    "cityscapes": "License of cityscapes-dataset.com: non-commercial purposes only; no redistribution.",
    "faces": "Packs of insightface: non-commercial research only. For other sets, see their own terms.",
    "folder": "Not known: see the source of the files.",
}


def copies(kind: str, classes: int) -> tuple[Copy, ...]:
    """Return the published copies that a data set can be compared with."""
    if kind == "faces" and classes in FACE_PACKS:
        return (FACE_PACKS[classes],)
    return COPIES[kind]
