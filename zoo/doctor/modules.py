"""Packages that a run uses beside a framework: those that it cannot do without, decoders and DALI."""

import importlib
from importlib import metadata, util
from typing import NamedTuple

from zoo.doctor.finding import ABSENT, FAILURE, OK, WARNING, Finding
from zoo.doctor.worker import Tell

SECTION = "data"
REQUIRED = {  # module -> distribution that provides it
    "numpy": "numpy",
    "grain": "grain",
    "yaml": "pyyaml",
    "rich": "rich",
    "psutil": "psutil",
    "safetensors": "safetensors",
    "tensorboard": "tensorboard",
}


class Decoder(NamedTuple):
    """An optional package.

    Attributes:
        topic: what is printed.
        module: that is imported to try it.
        package: that pip installs.
        use: what needs it.
    """

    topic: str
    module: str
    package: str
    use: str


DECODERS = (
    Decoder("OpenCV", "cv2", "opencv-python-headless", "images and frames from files"),
    Decoder("Pillow", "PIL.Image", "pillow", "masks, and images that OpenCV does not read"),
    Decoder("decord", "decord", "decord", "videos"),
    Decoder("PyAV", "av", "av", "videos that decord does not read"),
    Decoder("DALI", "nvidia.dali", "vision-zoo[dali]", "data.loader=dali"),
)


def missing() -> list[str]:
    """Return the distributions that no run can do without and that are not installed."""
    return [package for module, package in REQUIRED.items() if util.find_spec(module) is None]


def describe_missing(packages: list[str]) -> Finding:
    """Return the line about packages that `missing` has found."""
    return Finding("machine", "packages", FAILURE, f"not installed: {', '.join(packages)}", "pip install .")


def examine(seconds: float) -> list[Finding]:
    """Return a line about the packages that decode files, and one for each that is broken."""
    # Imported here: what is at the top of this module works without the package that it would report as missing.
    from zoo.doctor import child

    working, absent, findings = [], [], []
    for decoder in DECODERS:
        answer = child.ask(seconds, "module", decoder.module)
        if answer.facts.get("found") is False:
            absent.append(f"{decoder.topic} ({decoder.use}): pip install '{decoder.package}'")
        elif answer.failure:
            remedy = f"reinstall it: pip install --force-reinstall --no-deps {_distribution(decoder)}"
            findings.append(Finding(SECTION, decoder.topic, WARNING, f"{decoder.use}: {answer.failure}", remedy))
        else:
            working.append(f"{decoder.topic} {answer.facts.get('version') or ''}".strip())
    if working:
        findings.insert(0, Finding(SECTION, "decoders", OK, ", ".join(working)))
    return findings + [Finding(SECTION, "not installed", ABSENT, text) for text in absent]


def probe(tell: Tell, name: str) -> None:
    """Import a module. Facts: `found`, whether it is installed; `version`."""
    root = name.partition(".")[0]
    tell(found=True, stage=f"importing {name}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (root, name):
            raise
        tell(found=False)
        return
    tell(version=getattr(module, "__version__", None) or getattr(importlib.import_module(root), "__version__", None))


def dali_build() -> str | None:
    """Return the version of CUDA that the installed DALI is built for: 13.0 of nvidia-dali-cuda130; None without."""
    for distribution in metadata.packages_distributions().get("nvidia", ()):
        if distribution.startswith("nvidia-dali-cuda"):
            number = distribution.removeprefix("nvidia-dali-cuda")
            return f"{number[:-1]}.{number[-1]}"
    return None


def _distribution(decoder: Decoder) -> str:
    """Return the installed distribution of a decoder, which may be another than the one that pip would install."""
    return next(iter(metadata.packages_distributions().get(decoder.module.partition(".")[0], ())), decoder.package)
