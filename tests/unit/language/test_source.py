"""Kernel source: parameters, dependencies, and the fingerprint that caches rely on."""

from __future__ import annotations

from tests.support.language_kernels import module_from

TEXT = """
SCALE = tl.constexpr(2)

@jit
def inner(x):
    return x + OFFSET

OFFSET = tl.constexpr(1)

@jit
def outer(x):
    return inner(x) * SCALE

@jit
def k(p, n, BLOCK: tl.constexpr, KIND: "tl.constexpr" = 3, last=None):
    tl.store(p, outer(n) + OTHER)

OTHER = tl.constexpr((1, 2))
UNUSED = tl.constexpr(9)
"""


def fingerprint(text: str) -> str:
    return module_from(text)["k"].source.fingerprint()


def test_parameters() -> None:
    source = module_from(TEXT)["k"].source
    assert list(source.parameter_names) == ["p", "n", "BLOCK", "KIND", "last"]
    assert list(source.constexpr_names) == ["BLOCK", "KIND"]
    assert source.parameters[3].default == 3
    assert not source.parameters[0].has_default


def test_dependencies() -> None:
    module = module_from(TEXT)
    assert set(module["k"].source.dependencies()) == {"outer", "OTHER"}
    assert set(module["outer"].source.dependencies()) == {"inner", "SCALE"}


def test_fingerprint_follows_helpers_and_globals() -> None:
    base = fingerprint(TEXT)
    assert fingerprint(TEXT) == base
    for old, new in (
        ("x + OFFSET", "x - OFFSET"), ("OFFSET = tl.constexpr(1)", "OFFSET = tl.constexpr(3)"),
        ("(1, 2)", "(1, 3)"), ("tl.constexpr(2)", "tl.constexpr(2.0)"), ("= 3, last", "= 4, last"),
    ):  # fmt: skip
        assert fingerprint(TEXT.replace(old, new)) != base, (old, new)
    assert fingerprint(TEXT.replace("UNUSED = tl.constexpr(9)", "UNUSED = 5")) == base


def test_fingerprint_follows_a_changed_global_in_one_process() -> None:
    module = module_from(TEXT)
    source = module["k"].source
    before = source.fingerprint()
    module["OFFSET"].value = 5
    assert source.fingerprint() != before


def test_recursive_helpers_have_a_fingerprint() -> None:
    text = "@jit\ndef k(n, N: tl.constexpr):\n    return k(n, N - 1)\n"
    assert fingerprint(text) == fingerprint(text)
