"""All steps of a check, in order of worth: what is known first if the time ends early."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zoo.bench.gpu_checks import models, read
from zoo.bench.gpu_checks.models import MODELS, Model
from zoo.bench.gpu_checks.step import Step
from zoo.bench.matrix.cases import CHECKOUT

DOCTOR, PARITY, SPEED, DEMOS, RESUME, DETERMINISTIC, COMPARE, PROFILE, PEERS, TOGETHER, FILES = (
    "doctor",
    "parity",
    "speed",
    "demos",
    "resume",
    "deterministic",
    "compare",
    "profile",
    "peers",
    "together",
    "files",
)
GROUPS = {
    DOCTOR: "The machine",
    PARITY: "One update on the device against the CPU",
    SPEED: "Speed",
    DEMOS: "The demos",
    RESUME: "Killed and resumed",
    DETERMINISTIC: "Two runs of --deterministic",
    COMPARE: "tools/compare.py",
    PROFILE: "Operators that take longest",
    PEERS: "Other projects' loops",
    TOGETHER: "Two processes on one device",
    FILES: "Files",
}
FULL, TINY = "full size", "tiny"
ARITHMETIC = {  # words of the tables -> options of train.py
    "fp32": ("fp32", ()),
    "TF32": ("tf32", ("train.tf32=true",)),
    "AMP": ("amp", ("train.precision=amp",)),
    "AMP + compile": ("amp-compile", ("train.precision=amp", "train.compile=true")),
    "AMP + compile, CUDA graphs": ("amp-graphs", ("train.precision=amp", "train.compile=reduce-overhead")),
    "AMP, activations computed again": ("amp-checkpoint", ("train.precision=amp", "train.checkpoint_activations=true")),
}
WINDOW = ("--drop", "20", "--count", "100")
SHORT_WINDOW = ("--drop", "2", "--count", "5")
DRY_STEPS = 8  # updates of a demo in a dry run
SYNTHETIC_STEPS = 200  # of a demo whose data cannot be made


class Setting(NamedTuple):
    """What a check runs on.

    Attributes:
        out: its folder.
        device: as given to --device of train.py.
        frameworks: those to check.
        dry: whether to take tiny sizes and few updates, to try the check itself.
        upstream: folder of copies of other projects; None without them.
    """

    out: Path
    device: str
    frameworks: Sequence[str]
    dry: bool
    upstream: Path | None = None


def steps(setting: Setting) -> list[Step]:
    """Return all steps."""
    first, *others = [list(_of_framework(setting, name)) for name in setting.frameworks]
    return [_doctor(setting), *first, *(step for group in others for step in group)]


def _of_framework(setting: Setting, framework: str) -> Iterator[Step]:
    """Yield the steps of a framework."""
    yield from (_parity(setting, model, framework, TINY) for model in MODELS)
    for word in ("AMP", "fp32", "TF32"):
        yield from (_speed(setting, model, framework, word) for model in MODELS)
    yield from (_demo(setting, model, framework, amp=True) for model in MODELS)
    yield _resume(setting, framework)
    yield from (_deterministic(setting, model, framework) for model in MODELS[: 1 if setting.dry else None])
    if framework == "torch":
        yield from (_profile(setting, model) for model in MODELS)
        yield from (_peer(setting, model, word) for word in ("AMP", "fp32") for model in MODELS)
        for word in ("AMP + compile", "AMP + compile, CUDA graphs"):
            yield from (_speed(setting, model, framework, word) for model in MODELS)
    if framework == setting.frameworks[0]:
        yield from _compare(setting)
    yield from (_parity(setting, model, framework, FULL) for model in MODELS)
    yield from (_demo(setting, model, framework, amp=False) for model in MODELS)
    yield from (_speed(setting, model, framework, "AMP, activations computed again") for model in MODELS)
    yield from _files(setting, framework)
    yield _together(setting, framework)


def _doctor(setting: Setting) -> Step:
    out = str(setting.out / "runs" / DOCTOR / read.VALUES)
    words = (str(CHECKOUT / "tools" / "doctor.py"), "--json", out, *(("--quick",) if setting.dry else ()))
    return Step(DOCTOR, DOCTOR, words, 600, read.values, accepts=(0, 1))


def _parity(setting: Setting, model: Model, framework: str, size: str) -> Step:
    """Compare the demo's network in fp64 where the framework has it, the full size in fp32."""
    precision = "fp64" if size == TINY and framework != "mindspore" else "fp32"
    name = _name(PARITY, model, framework, "tiny" if size == TINY else "full")
    if size == TINY or setting.dry:
        options = models.tiny(model, framework)
    else:
        options = [*models.full(model, framework, False), "-o", f"train.batch={models.PARITY_BATCH[model.name]}"]
    options += ["-o", f"train.precision={precision}", "-o", models.WITHOUT_WORKERS]
    words = (
        "-m",
        "zoo.bench.gpu_checks.parity",
        *options,
        "--device",
        setting.device,
        "--json",
        _values(setting, name),
    )
    facts = {"model": model.name, "framework": framework, "size": size}
    return Step(name, PARITY, words, 400, read.values, facts=facts, accepts=(0, 1))


def _speed(setting: Setting, model: Model, framework: str, word: str) -> Step:
    suffix, keys = ARITHMETIC[word]
    name = _name(SPEED, model, framework, suffix)
    options = models.full(model, framework, suffix.startswith("amp"))
    facts = {"model": model.name, "framework": framework, "arithmetic": word, "data": "synthetic"}
    missing = "compiling takes minutes on a CPU; a dry run leaves it out" if setting.dry and "compile" in word else None
    return _speed_step(setting, name, SPEED, models.tiny(model, framework) if setting.dry else options, keys, facts) \
        ._replace(missing=missing)  # fmt: skip


def _speed_step(
    setting: Setting, name: str, group: str, options: Sequence[str], keys: Sequence[str], facts: dict[str, str]
) -> Step:
    """Return a run of train.py --speed."""
    words = [*_train(setting, name), *options, *(word for key in keys for word in ("-o", key)), "--speed"]
    words += SHORT_WINDOW if setting.dry else WINDOW
    return Step(name, group, tuple(words), 240, read.speed, facts=facts)


def _demo(setting: Setting, model: Model, framework: str, amp: bool) -> Step:
    """Train a demo to its end; on synthetic data, for some updates, where its data cannot be made."""
    name = _name(DEMOS, model, framework, "amp" if amp else "fp32")
    lacks = models.missing(model.packages)
    if setting.dry or lacks:
        count = DRY_STEPS if setting.dry else SYNTHETIC_STEPS
        options = [*models.tiny(model, framework), "--max-steps", str(count), "-o", "train.log_every=1"]
    else:
        options = models.recipe(model.demo, framework, [])
    data = "synthetic" if setting.dry or lacks else "the demo's"
    facts = {"model": model.name, "framework": framework, "arithmetic": "AMP" if amp else "fp32", "data": data}
    words = (*_train(setting, name), *options, *(["--amp"] if amp else []))
    return Step(name, DEMOS, words, 400, read.training, facts=facts)


def _resume(setting: Setting, framework: str) -> Step:
    name = f"{RESUME}-{framework}"
    words = ("-m", "zoo.bench.gpu_checks.resume", *_folder(setting, name), *models.tiny(MODELS[0], framework))
    return Step(name, RESUME, (*words, "--device", setting.device), 300, read.values, facts={"framework": framework},
                accepts=(0, 1))  # fmt: skip


def _deterministic(setting: Setting, model: Model, framework: str) -> Step:
    """Compare two runs: in 16 bits, whose kernels are usually chosen by their time; in a dry run in fp32."""
    name = f"{DETERMINISTIC}-{model.name}-{framework}"
    words = ["-m", "zoo.bench.gpu_checks.deterministic", *_folder(setting, name), *models.tiny(model, framework)]
    words += ["-o", f"train.precision={'fp32' if setting.dry else 'amp'}", "--device", setting.device]
    facts = {"model": model.name, "framework": framework, "arithmetic": "fp32" if setting.dry else "AMP"}
    return Step(name, DETERMINISTIC, tuple(words), 300, read.values, facts=facts, accepts=(0, 1))


def _compare(setting: Setting) -> Iterator[Step]:
    for model in MODELS[:1] if setting.dry else MODELS:
        name = f"{COMPARE}-{model.name}"
        options = models.tiny(model, setting.frameworks[0])
        at = options.index("--framework")
        del options[at : at + 2]
        words = ["-m", "zoo.bench.gpu_checks.compare_devices", *_folder(setting, name), "--device", setting.device]
        words += ["--frameworks", ",".join(setting.frameworks), *options, *(["--steps", "4"] if setting.dry else [])]
        yield Step(name, COMPARE, tuple(words), 600, read.values, facts={"model": model.name}, accepts=(0, 1))


def _profile(setting: Setting, model: Model) -> Step:
    name = f"{PROFILE}-{model.name}"
    options = models.tiny(model, "torch") if setting.dry else models.full(model, "torch", True)
    at = options.index("--framework")
    del options[at : at + 2]
    options += ["-o", "train.precision=amp", "-n", "2" if setting.dry else "10", "--device", setting.device]
    folder = setting.out / "runs" / name
    options += ["--json", str(folder / read.VALUES), "--trace", str(folder / "trace.json")]
    words = (str(CHECKOUT / "tools" / "profiler.py"), *options)
    return Step(name, PROFILE, words, 240, read.values, facts={"model": model.name})


def _peer(setting: Setting, model: Model, word: str) -> Step:
    """Time another project's loop and this trainer in turn, in a dry run with few pixels."""
    suffix, keys = ARITHMETIC[word]
    name, peer = f"{PEERS}-{model.name}-{suffix}", models.PEERS[model.name]
    options = models.beside_peer(model, word == "AMP")
    if setting.dry:
        smaller = ["train.batch=2", *(["data.crop=[64,128]"] if model.kind == "scene" else ["data.size=64"])]
        smaller += ["data.size=112", "data.num_classes=100"] if model.kind == "face" else []
        options += [word for key in smaller for word in ("-o", key)] + ["--warm-up", "1", "--passes", "2"]
    words = ["-m", "zoo.bench.gpu_checks.peers", *options, "-o", models.WITHOUT_WORKERS, "--peer", peer.module]
    words += [word for key in keys for word in ("-o", key)]
    words += ["--upstream", str(setting.upstream), "--device", setting.device, "--json", _values(setting, name)]
    words += ["--no-autocast"] * peer.mixes
    missing = models.missing(peer.packages)
    if peer.clone and not (setting.upstream and (setting.upstream / peer.clone).is_dir()):
        missing = f"no copy of {peer.clone} in --upstream; docs/performance.md says what to clone"
    facts = {"model": model.name, "framework": "torch", "arithmetic": word}
    return Step(name, PEERS, tuple(words), 300, read.values, missing, facts)


def _files(setting: Setting, framework: str) -> Iterator[Step]:
    """Yield the making of files, which is done once, and the speed of each model on them."""
    folder = str(setting.out / "files")
    lacks = models.missing(("cv2", "PIL", "av"))
    kinds = ("images",) if setting.dry else ()
    make = ("-m", "zoo.bench.gpu_checks.files", folder, *kinds)
    if framework == setting.frameworks[0]:
        yield Step(FILES, FILES, make, 500, lambda _: {}, lacks)
    for model in MODELS[:1] if setting.dry else MODELS:
        for loader in ("reference", "dali") if model is MODELS[0] else ("reference",):
            name = _name(SPEED, model, framework, f"files-{loader}")
            options = models.on_files(model, framework, folder)
            if setting.dry:
                options += ["-o", "model.depth=18", "-o", "model.width=8", "-o", "train.batch=4"]
            missing = lacks or (models.missing(("nvidia.dali",)) if loader == "dali" else None)
            words = "files, DALI" if loader == "dali" else "files"
            facts = {"model": model.name, "framework": framework, "arithmetic": "AMP", "data": words}
            keys = ("train.precision=amp", f"data.loader={loader}")
            yield _speed_step(setting, name, SPEED, options, keys, facts)._replace(missing=missing)


def _together(setting: Setting, framework: str) -> Step:
    name, model = f"{TOGETHER}-{framework}", MODELS[0]
    options = models.tiny(model, framework) if setting.dry else models.full(model, framework, True)
    words = ["-m", "zoo.bench.gpu_checks.together", *_folder(setting, name), *options, "--device", setting.device]
    words += ["-o", "train.precision=amp", *(SHORT_WINDOW if setting.dry else WINDOW)]
    facts = {"model": model.name, "framework": framework}
    return Step(name, TOGETHER, tuple(words), 300, read.values, facts=facts)


def _name(group: str, model: Model, framework: str, suffix: str) -> str:
    return f"{group}-{model.name}-{framework}-{suffix}"


def _train(setting: Setting, name: str) -> list[str]:
    """Return the program train.py with device and folder of a step."""
    folder = setting.out / "runs" / name / read.RUN
    return [str(CHECKOUT / "train.py"), "--device", setting.device, "--out", str(folder)]


def _folder(setting: Setting, name: str) -> tuple[str, ...]:
    """Return the options of a program of this package for its folder and results."""
    return ("--folder", str(setting.out / "runs" / name / "runs"), "--json", _values(setting, name))


def _values(setting: Setting, name: str) -> str:
    return str(setting.out / "runs" / name / read.VALUES)
