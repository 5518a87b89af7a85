"""What is refused: a code, a place, a message and one hint for every kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.language_kernels import build_body, module_from

import isthmus.language as tl
from isthmus.core.errors import KernelError
from isthmus.language.diagnostics import MISTAKES
from isthmus.language.frontend import build
from isthmus.language.source import KernelSource

PLAIN = "def plain(x):\n    return x"
HELPER = """
    @jit
    def helper(x, y):
        return x + y

    @jit
    def endless(x):
        return endless(x)

    @jit
    def early(x):
        for i in range(3):
            return i
        return 0

    @jit
    def mixed(x):
        if x > 0:
            return 1
        return 2.0
    """
CASES = [
    ("with n:\n    pass", "K101"),
    ("import math", "K101"),
    ("for i in range(n):\n    pass\nelse:\n    pass", "K101"),
    ("try:\n    pass\nfinally:\n    pass", "K101"),
    ("x = {1: 2}", "K102"),
    ("x = n @ n", "K102"),
    ("x = tl.static_range(3)", "K102"),
    ("for i in p:\n    pass", "K102"),
    ("def g(x):\n    return x", "K103"),
    ("x = lambda y: y", "K102"),
    ("for i in range(n):\n    break", "K104"),
    ("for i in range(n):\n    continue", "K104"),
    ("for i in range(n):\n    if i > 3:\n        return", "K105"),
    ("x = early(n)", "K105"),
    ("tl.load(p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)", "K107"),
    ("tl.arange(0)", "K107"),
    ("helper(n)", "K107"),
    ("helper(n, n, n)", "K107"),
    ("helper(n, x=n)", "K107"),
    ("tl.exp(f, fast=True)", "K107"),
    ("for i in range(0, n, 0):\n    pass", "K107"),
    ("tl.inline_asm_elementwise('cvt', '=r,r', [n], tl.int32, True, 1)", "K108"),
    ("tl.dot_scaled(n)", "K108"),
    ("x = tl.arange(0, 4)\nx[0] = 1", "K109"),
    ("n.value = 3", "K109"),
    ("a, *c = (1, 2)", "K109"),
    ("tl.store(q, missing)", "K201"),
    ("x = G + n", "K202"),
    ("plain(n)", "K202"),
    ("if n > 0:\n    y = 1\ntl.store(q, y)", "K203"),
    ("for i in range(n):\n    y = i\ntl.store(q, y)", "K203"),
    ("for i in range(n):\n    pass\ntl.store(q, i)", "K203"),
    ("M = N * 2\ntl.arange(0, M)", "K204"),
    ("tl.static_assert(n > 0)", "K204"),
    ("X: tl.constexpr = n", "K204"),
    ("tl.zeros((n,), tl.float32)", "K204"),
    ("for i in range(n):\n    N = N + 1", "K205"),
    ("M: tl.constexpr = 1\nM: tl.constexpr = 2", "K205"),
    ("tl.static_assert(N == 15, f'N is {N}')", "K206"),
    ("assert N == 15", "K206"),
    ("n.missing", "K207"),
    ("tl.missing(n)", "K207"),
    ("N(3)", "K207"),
    ("endless(n)", "K209"),
    ("p * 2", "K301"),
    ("p + f", "K301"),
    ("p - q", "K301"),
    ("f & 1", "K301"),
    ("f // 2", "K301"),
    ("n ** 2", "K301"),
    ("~f", "K301"),
    ("tl.xor_sum(tl.load(p + tl.arange(0, 4)), 0)", "K301"),
    ("x = N / 0", "K301"),
    ("tl.load(p + tl.arange(0, 4)).to(tl.float8e5) + n", "K301"),
    ("n + 3_000_000_000", "K302"),
    ("n.to(tl.int8) + 100000", "K302"),
    ("n.to(tl.uint32) + (-1)", "K302"),
    ("tl.full((4,), 2.5, tl.int32)", "K302"),
    ("tl.full((4,), float('inf'), tl.int32)", "K302"),
    ("f.to(tl.int16, bitcast=True)", "K303"),
    ("n.to(tl.float32, fp_downcast_rounding='rtz')", "K303"),
    ("n.to(4)", "K303"),
    ("p.to(tl.float32)", "K303"),
    ("f.to(tl.float16, fp_downcast_rounding='up')", "K303"),
    ("x = 0\nfor i in range(n):\n    x += 1.0", "K304"),
    ("x = tl.zeros((4,), tl.float32)\nwhile n > 0:\n    x = tl.sum(x, 0)\n    n -= 1", "K304"),
    ("x = None\nfor i in range(n):\n    x = i", "K304"),
    ("if n > 0:\n    y = 1\nelse:\n    y = 2.0", "K305"),
    ("y = 0\nif n > 0:\n    y = 1.0", "K305"),
    ("y = 0\nif n > 0:\n    y = 1.0\nelse:\n    y = 2.0", "K305"),
    ("n if n > 3 else 4.0", "K305"),
    ("a, c, d = (1, 2)", "K306"),
    ("a, c = n", "K306"),
    ("mixed(n)", "K306"),
    ("tl.exp(tl.load(h))", "K307"),
    ("tl.floor(n)", "K307"),
    ("tl.sigmoid(n)", "K307"),
    ("n // n.to(tl.uint32)", "K308"),
    ("n / n.to(tl.uint32)", "K308"),
    ("tl.where(n > 0, 'a', 'b')", "K309"),
    ("tl.store(p, None)", "K309"),
    ("if tl.arange(0, 4) > 2:\n    pass", "K310"),
    ("for i in range(f):\n    pass", "K310"),
    ("while True:\n    pass", "K310"),
    ("if 'text':\n    pass", "K310"),
    ("tl.arange(0, 6)", "K401"),
    ("tl.zeros((8, 3), tl.float32)", "K401"),
    ("tl.arange(4, 4)", "K401"),
    ("tl.zeros((1024, 2048), tl.float32)", "K402"),
    ("tl.arange(0, 16) + tl.arange(0, 8)", "K403"),
    ("tl.broadcast_to(tl.arange(0, 8), (16,))", "K403"),
    ("tl.program_id(3)", "K404"),
    ("tl.sum(tl.arange(0, 8), 1)", "K404"),
    ("tl.permute(tl.zeros((2, 4), tl.int32), (0, 0))", "K404"),
    ("tl.reshape(tl.arange(0, 8), (4,))", "K405"),
    ("tl.split(tl.arange(0, 8))", "K405"),
    ("tl.dot(tl.arange(0, 8), tl.arange(0, 8))", "K406"),
    ("x = tl.zeros((16, 16), tl.float32)\ntl.dot(x, x.to(tl.float16))", "K406"),
    ("x = tl.zeros((16, 16), tl.float32)\ntl.dot(x, tl.zeros((8, 16), tl.float32))", "K406"),
    ("x = tl.zeros((16, 16), tl.float32)\ntl.dot(x, x, tl.zeros((16, 8), tl.float32))", "K406"),
    ("tl.arange(0, 8)[0]", "K407"),
    ("(1, 2)[5]", "K407"),
    ("tl.arange(0, 8)[1:3]", "K407"),
    ("tl.load(n)", "K501"),
    ("tl.store(f, 1)", "K501"),
    ("tl.atomic_add(n, 1)", "K501"),
    ("tl.load(p + tl.arange(0, 8), other=0.0)", "K502"),
    ("tl.load(p, mask=n)", "K503"),
    ("tl.store(p, 1.0, mask=f)", "K503"),
    ("tl.store(p, tl.arange(0, 8))", "K504"),
    ("tl.load(p, mask=tl.arange(0, 8) < n)", "K504"),
    ("tl.advance(p, (1,))", "K505"),
    ("tl.make_block_ptr(p, (n,), (1, 1), (0, 0), (4, 4), (1, 0))", "K505"),
    ("x = tl.make_block_ptr(p, (n,), (1,), (0,), (4,), (0,))\ntl.load(x, mask=n > 0)", "K505"),
    (
        "x = tl.make_block_ptr(p, (n,), (1,), (0,), (4,), (0,))\n"
        "tl.load(x, boundary_check=(0,), padding_option='one')",
        "K505",
    ),
    ("tl.atomic_max(h, 1.0)", "K507"),
    ("tl.atomic_add(p.to(tl.pointer_type(tl.int8)), 1)", "K507"),
]


@pytest.mark.parametrize(("body", "code"), CASES)
def test_refused_with_place_and_hint(
    body: str, code: str, refuse: Callable[..., KernelError]
) -> None:
    helpers = f"G = 5\n{PLAIN}\n" + "\n".join(line[4:] for line in HELPER.splitlines())
    error = refuse(body, code, helpers, N=16)
    assert error.location is not None
    place, source, caret, *rest = str(error).splitlines()
    assert place.startswith("<kernels ")
    assert place.endswith(f"[{code}]")
    marked = source[caret.index("^") : caret.rindex("^") + 1]
    assert marked.strip(), "the caret points at source text"
    assert sum(line.startswith("  hint: ") for line in rest) == 1
    for internal in ("Tensor", "object at", "Emitter", "NoneType", "Traceback"):
        assert internal not in str(error)


def test_every_code_has_a_case_or_a_test_of_its_own() -> None:
    own_tests = {"K100", "K208", "K506"}
    assert {code for _, code in CASES} | own_tests == set(MISTAKES)


def test_the_message_shows_line_and_caret(refuse: Callable[..., KernelError]) -> None:
    error = refuse("offsets = n + tl.arange(0, 16)\nx = tl.load(p + offsets, other=0.0)", "K502")
    text = str(error).splitlines()
    assert text[0].split(": ", 1)[1] == "tl.load has a fill value (other) but no mask [K502]"
    assert text[1:] == [
        "      x = tl.load(p + offsets, other=0.0)",
        "          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "  hint: give mask=..., or leave other out",
    ]


def test_mistakes_in_helpers_name_their_callers(refuse: Callable[..., KernelError]) -> None:
    helpers = (
        "@jit\ndef inner(x):\n    return tl.exp(x)\n\n@jit\ndef outer(x):\n    return inner(x)"
    )
    error = refuse("a = 1\nouter(n)", "K307", helpers)
    assert error.location is not None
    assert error.location.line == 3
    assert [caller.line for caller in error.callers] == [7, 12]
    assert "in a helper called from <kernels" in str(error)


def test_argument_types_must_fit_the_parameters() -> None:
    kernel = module_from("@jit\ndef k(p, n, N: tl.constexpr = 4):\n    tl.store(p, n)\n")["k"]
    build(kernel.source, {"p": "*i32", "n": "i32"})
    for signature, constants in (
        ({"p": "*i32"}, {}),
        ({"p": "*i32", "n": "i33"}, {}),
        ({"p": "*i32", "n": "i32", "z": "i32"}, {}),
    ):
        with pytest.raises(KernelError) as caught:
            build(kernel.source, signature, constants)
        assert caught.value.code == "K208"


def test_stores_through_read_only_pointers_are_refused(refuse: Callable[..., KernelError]) -> None:
    refuse("tl.store(n.to(tl.pointer_type(tl.float32, True)), 1.0)", "K506")


def test_source_that_cannot_be_read() -> None:
    scope: dict[str, object] = {"tl": tl}
    exec("def k(p):\n    pass", scope)
    source = KernelSource(scope["k"])  # type: ignore[arg-type]
    with pytest.raises(KernelError) as caught:
        source.fingerprint()
    assert caught.value.code == "K100"
    given = KernelSource(scope["k"], text="def k(p):\n    pass\n")  # type: ignore[arg-type]
    assert build(given, {"p": "*f32"}).name == "k"


def test_functions_of_the_language_say_that_they_need_a_kernel() -> None:
    for call in (lambda: tl.load(1), lambda: tl.sort(1), lambda: tl.target.vector_bits):
        with pytest.raises(KernelError, match="only inside a kernel"):
            call()


def test_unknown_exceptions_do_not_escape_as_python_errors() -> None:
    with pytest.raises(KernelError):
        build_body("x = tl.zeros((4,), tl.float32)\ny = x.reshape(2, 2, 2, foo=3)")
    with pytest.raises(KernelError):
        build_body("x = int('abc')")


def test_the_documentation_lists_every_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "language.md").read_text()
    for mistake in MISTAKES.values():
        assert f"| {mistake.code} | {mistake.meaning} |" in page
