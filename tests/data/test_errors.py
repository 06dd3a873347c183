"""The guard around parsers: all that a file can make them raise is an error of the file, and nothing else is."""

import pytest

from zoo.data.errors import BadSample, UserError, natural, parsing


@pytest.mark.parametrize(
    "error, reason",
    [
        (ValueError("it is cut\nsecond line"), "it is cut"),
        (KeyError("step"), "KeyError: 'step'"),
        (OSError(2, "No such file or directory"), "No such file or directory"),
        (MemoryError(), "MemoryError"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError: maximum recursion depth exceeded"),
        (AssertionError(), "AssertionError"),
        (BadSample("not a regular file"), "not a regular file"),
        (
            RuntimeError("[22:10:11] /src/video.cc:151: Check failed: st_nb >= 0"),
            "RuntimeError: Check failed: st_nb >= 0",
        ),
        (ValueError("x" * 500), "x" * 160),
    ],
)
def test_exceptions_become_errors_of_the_file(error, reason):
    with pytest.raises(UserError) as caught, parsing("a.bin: cannot be read", "copy it again"):
        raise error
    assert str(caught.value) == f"a.bin: cannot be read ({reason}); copy it again"
    if not isinstance(error, BadSample):
        with pytest.raises(BadSample) as sample, parsing("cannot be decoded", kind=BadSample):
            raise error
        assert str(sample.value) == f"cannot be decoded ({reason})"


@pytest.mark.parametrize("error", [UserError("b.bin: of another version"), BadSample("too short")])
def test_errors_of_the_file_pass(error):
    with pytest.raises(type(error)) as caught, parsing("cannot be decoded", kind=BadSample):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whoever_ends_the_program_does_so(error):
    with pytest.raises(error), parsing("a.bin: cannot be read"):
        raise error


@pytest.mark.parametrize("text, number", [("0", 0), ("8", 8), ("007", 7), ("999999999", 999_999_999)])
def test_natural_numbers(text, number):
    assert natural(text) == number


@pytest.mark.parametrize("text", ["", "²", "٣", "-1", "+1", "1 ", "1\n", "1_000", "1.0", "1" * 10, "1" * 5000])
def test_no_natural_numbers(text):
    assert natural(text) is None
