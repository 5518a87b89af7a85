"""Random integer expressions: compiled kernels against C arithmetic done in Python."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.language_kernels import evaluate

LANES = 8
Lane = tuple[int, int]


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def quotient(a: int, b: int) -> int:
    if b == 0:
        return 0
    size = abs(a) // abs(b)
    return wrapped(size if (a < 0) == (b < 0) else -size)


def remainder(a: int, b: int) -> int:
    return a if b == 0 else wrapped(a - b * quotient(a, b))


OPERATORS = {
    "({} + {})": lambda a, b: wrapped(a + b),
    "({} - {})": lambda a, b: wrapped(a - b),
    "({} * {})": lambda a, b: wrapped(a * b),
    "({} // {})": quotient,
    "({} % {})": remainder,
    "({} & {})": lambda a, b: a & b,
    "({} | {})": lambda a, b: a | b,
    "({} ^ {})": lambda a, b: a ^ b,
    "tl.minimum({}, {})": min,
    "tl.maximum({}, {})": max,
    "tl.where({0} < {1}, {0}, 7)": lambda a, b: a if a < b else 7,
    "({0} >= {1}).to(tl.int32)": lambda a, b: int(a >= b),
    "(-{0} ^ ~{1})": lambda a, b: wrapped(-a) ^ ~b,
}
LEAVES = {"a": lambda lane: lane[0], "b": lambda lane: lane[1]}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4):
    """(text, function of the values of a and b); at least one run-time operand everywhere."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(sorted(LEAVES)))
        return name, LEAVES[name]
    template = draw(st.sampled_from(sorted(OPERATORS)))
    combine = OPERATORS[template]
    left_text, left = draw(expressions(depth - 1))
    if draw(st.booleans()):
        number = draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 9))
        return (
            template.format(left_text, f"({number})"),
            lambda lane: combine(left(lane), number),
        )
    right_text, right = draw(expressions(depth - 1))
    return template.format(left_text, right_text), lambda lane: combine(left(lane), right(lane))


NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expressions(), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=LANES, max_size=LANES))
def test_integer_expressions(expression, lanes: list[Lane]) -> None:
    text, function = expression
    a, b = np.array(lanes, np.int64).astype(np.int32).T
    result = evaluate(text, np.ascontiguousarray(a), np.ascontiguousarray(b), out=np.int32)
    np.testing.assert_array_equal(result, [function(lane) for lane in lanes], text)
