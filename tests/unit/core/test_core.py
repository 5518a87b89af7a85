"""Settings, dtypes, locations, target descriptions."""

from __future__ import annotations

import pytest

from isthmus.core.config import available_cores, config
from isthmus.core.dtypes import DTYPES, dtype_named
from isthmus.core.errors import ConfigError, DTypeError, KernelError
from isthmus.core.location import Location
from isthmus.core.target import CacheDescription, TargetDescription


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ISTHMUS_NUM_THREADS", "0", "above 0"),
        ("ISTHMUS_NUM_THREADS", "two", "whole number"),
        ("ISTHMUS_STRICT", "yes", "0 or 1"),
        ("ISTHMUS_THREAD_POOL", "tbb", "auto, libgomp or own"),
    ],
)
def test_bad_settings_name_the_variable(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable} is '{value}'.*{message}"):
        config()


def test_settings_are_read_when_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("ISTHMUS_NUM_THREADS", "3")
    monkeypatch.setenv("ISTHMUS_CACHE_DIR", str(tmp_path))
    assert config().num_threads == 3
    assert config().cache_dir == tmp_path
    monkeypatch.delenv("ISTHMUS_NUM_THREADS")
    assert config().num_threads == available_cores() >= 1


def test_dtypes():
    assert dtype_named("bf16").size_bytes == 2
    assert dtype_named("f32").epsilon == 2.0**-23
    assert dtype_named("u8").is_integer
    assert not dtype_named("u8").is_signed
    assert len({dtype.name for dtype in DTYPES.values()}) == len(DTYPES)
    with pytest.raises(DTypeError, match=r"unknown dtype 'float'; known dtypes: bool, i8"):
        dtype_named("float")


def test_kernel_error_shows_line_and_caret(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("first\nx = foo(y)\n")
    error = KernelError(
        "unknown function foo",
        location=Location(str(path), 2, 5, 8),
        hint="call a function of the language",
        code="K101",
    )
    assert str(error).splitlines() == [
        f"{path}:2:5: unknown function foo [K101]",
        "  x = foo(y)",
        "      ^^^",
        "  hint: call a function of the language",
    ]


def test_location_of_a_file_that_is_gone_has_no_excerpt():
    assert Location("/gone.py", 3).excerpt() == []


def test_target_description():
    target = TargetDescription("t", vector_bits=256, caches=(CacheDescription(1, 32768),))
    assert target.lanes(32) == 8
    assert target.lanes(512) == 1
    assert target.cache_bytes(1, 1) == 32768
    assert target.cache_bytes(2, 99) == 99
    assert (
        target.key() == TargetDescription("t", vector_bits=256, cores=8, caches=target.caches).key()
    )
    assert target.key() != TargetDescription("t", vector_bits=512, caches=target.caches).key()
