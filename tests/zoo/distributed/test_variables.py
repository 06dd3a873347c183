"""Which environment variables a run carries and records."""

import pytest

from zoo.distributed.variables import HIDDEN, NAMED, carried, is_secret, recorded, withheld

ENVIRON = {
    "NCCL_DEBUG": "INFO",
    "NCCL_IB_PKEY": "0x7fff",  # a partition of InfiniBand
    "FLAGS_conv_workspace_size_limit": "4000",
    "OMP_NUM_THREADS": "4",
    "GLOG_v": "3",
    "CUDA_VISIBLE_DEVICES": "2,3",
    "MS_SCHED_PORT": "8118",
    "MS_DEV_RUNTIME_CONF": "memory_statistics:True",
    "TORCH_API_KEY": "abc",
    "NCCL_PROXY": "http://user:pass@proxy:80",
    "MS_a.b": "not a name of shells",
    "HOME": "/root",
    "PATH": "/bin",
}


def test_variables_are_carried_by_prefix():
    assert carried(ENVIRON) == {
        "FLAGS_conv_workspace_size_limit": "4000",
        "GLOG_v": "3",
        "MS_DEV_RUNTIME_CONF": "memory_statistics:True",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_PKEY": "0x7fff",
        "OMP_NUM_THREADS": "4",
    }


def test_variables_that_are_not_carried_are_listed():
    assert withheld(ENVIRON) == ["CUDA_VISIBLE_DEVICES", "MS_a.b", "NCCL_PROXY", "TORCH_API_KEY"]


def test_devices_and_named_variables_are_recorded_too():
    environ = {**ENVIRON, NAMED: "HOME,TORCH_API_KEY,GONE"}
    expected = {**carried(ENVIRON), "CUDA_VISIBLE_DEVICES": "2,3", "HOME": "/root", "TORCH_API_KEY": HIDDEN}
    assert recorded(environ) == expected
    assert list(recorded(environ)) == sorted(expected)


@pytest.mark.parametrize(
    "name, secret",
    [
        *((name, True) for name in ("AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "HF_TOKEN", "NCCL_KEY", "FLAGS_passwd")),
        *((name, True) for name in ("DB_PASS", "PGPASSPHRASE", "TORCH_PASS", "MYSQL_PWD", "MS_PWD", "FLAGS_pwd")),
        *((name, True) for name in ("COOKIE", "NETRC", "SSL_CLIENT_CERT", "SIGNING_ID", "NCCL_PASSPHRASE")),
        *((name, False) for name in ("FLAGS_pir_apply_inplace_pass", "MS_DEV_ENABLE_PASS_CIRCLE_RECOVERY", "PASSIVE")),
        *((name, False) for name in ("NCCL_IB_PKEY", "KMP_AFFINITY", "FLAGS_cudnn_deterministic", "TORCH_LOGS")),
    ],
)
def test_secrets_are_recognized(name, secret):
    assert is_secret(name, "1") == secret


@pytest.mark.parametrize(
    "value, secret",
    [
        ("ftp://me:pw@host", True),
        ("https://ghp_x@github.com/x", True),
        ("see https://:pw@host/a", True),
        ("http://proxy:80/a@b", False),
        ("a@b://c", False),
    ],
)
def test_secrets_in_urls_are_recognized(value, secret):
    assert is_secret("NCCL_X", value) == secret
