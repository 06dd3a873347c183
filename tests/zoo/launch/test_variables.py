"""Variables of --env, and what --dry-run lists."""

import pytest

from zoo.data.errors import UserError
from zoo.launch.variables import check_printable, collect, describe

CALLER = {"NCCL_DEBUG": "INFO", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "1", "HF_TOKEN": "abc"}


def test_variables_of_the_caller_and_of_env():
    assert collect([], CALLER) == {"NCCL_DEBUG": "INFO"}
    named = ["HOME", "NCCL_DEBUG=a=b 'c'\n", "CUDA_VISIBLE_DEVICES", "EMPTY="]
    assert collect(named, CALLER) == {
        "NCCL_DEBUG": "a=b 'c'\n",
        "HOME": "/root",
        "CUDA_VISIBLE_DEVICES": "1",
        "EMPTY": "",
        "ZOO_ENV": "HOME,NCCL_DEBUG,CUDA_VISIBLE_DEVICES,EMPTY",
    }


@pytest.mark.parametrize(
    "text, error",
    [
        ("NOT_SET", "--env NOT_SET: not set here; give its value, --env NOT_SET=VALUE"),
        ("1A=x", "--env 1A=x: expected NAME or NAME=VALUE"),
        ("A-B=x", "expected NAME or NAME=VALUE"),
        ("=x", "expected NAME or NAME=VALUE"),
        ("", "expected NAME or NAME=VALUE"),
        ("MASTER_ADDR=n1", "--env MASTER_ADDR: launchers set this variable"),
    ],
)
def test_mistakes(text, error):
    with pytest.raises(UserError, match=error):
        collect([text], CALLER)


def test_the_list_hides_secrets_and_names_what_is_left_out():
    caller = {**CALLER, "TORCH_TOKEN": "abc"}
    assert describe(collect(["HF_TOKEN", "A=b c"], caller), caller) == [
        "env NCCL_DEBUG=INFO",
        "env HF_TOKEN=(hidden)",
        "env A='b c'",
        "env ZOO_ENV=HF_TOKEN,A",
        "not carried unless named with --env: CUDA_VISIBLE_DEVICES, TORCH_TOKEN",
    ]
    check_printable(collect(["A=b c"], caller))
    with pytest.raises(UserError, match="--env HF_TOKEN: looks like a secret, which --print would write down"):
        check_printable(collect(["HF_TOKEN"], caller))
