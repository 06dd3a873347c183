"""Environment variables that belong to a run: those that reach all its processes, and those that its journal records.

They change how fast or how exactly a framework computes and communicates. Variables that look like secrets are neither
carried nor recorded because of their prefix; `tools/launch.py --env NAME` carries any variable.
"""

import re
from collections.abc import Mapping

PREFIXES = (
    "ASCEND_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "FI_",
    "FLAGS_",
    "GLOG_",
    "GLOO_",
    "HCCL_",
    "KMP_",
    "MKL_",
    "MS_",
    "NCCL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
    "UCX_",
)
NAMED = "ZOO_ENV"  # names that tools/launch.py --env was given, separated by commas
HIDDEN = "(hidden)"  # in place of the value of a secret
# The devices of one host: recorded, but not carried to other hosts unless they are named.
OF_ONE_HOST = frozenset({"CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"})
# What launchers tell the processes that they start.
OF_LAUNCHERS = frozenset({
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
    *("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT"),
    *("RANK_ID", "RANK_SIZE", "DEVICE_ID", NAMED),
})  # fmt: skip
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|PWD|CREDENTIAL|AUTH|COOKIE|NETRC|CERT|SIGNING"
    r"|(API|ACCESS|PRIVATE)_?KEY|(^|_)KEYS?(_|$)"
    r"|^(?!FLAGS_|MS_DEV_).*PASS(?!IVE)",  # those of the frameworks switch passes of their compilers
    flags=re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"://[^/\s@]+@")  # a URL with a password, a token or a user's name
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that reach the processes of a run on all hosts without being named."""
    return {name: value for name, value in _by_prefix(environ).items() if name not in OF_ONE_HOST}


def withheld(environ: Mapping[str, str]) -> list[str]:
    """Return the names of variables with one of the prefixes that are not carried without being named."""
    found = carried(environ)
    return sorted(
        name for name in environ if name.startswith(PREFIXES) and name not in found and name not in OF_LAUNCHERS
    )


def recorded(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the journal of a run records; values of secrets that --env named are hidden."""
    named = [name for name in environ.get(NAMED, "").split(",") if name in environ]
    values = {name: HIDDEN if is_secret(name, environ[name]) else environ[name] for name in named}
    return dict(sorted({**_by_prefix(environ), **values}.items()))


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks as if it held a password or a key."""
    return bool(SECRET_NAME.search(name) or SECRET_VALUE.search(value))


def _by_prefix(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIXES) and NAME.fullmatch(name) and name not in OF_LAUNCHERS
        if not is_secret(name, value)
    }
