"""Random IR programs: text and back, passes that change nothing, compiled code that agrees."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from random_ir import Program, programs
from run_kernels import Kernel

from isthmus.ir.core import Function
from isthmus.ir.interpreter import run
from isthmus.ir.parser import parse_function
from isthmus.ir.printer import print_function
from isthmus.ir.verifier import verify
from isthmus.passes import pipeline


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip


def interpreted(program: Program, function: Function) -> list[np.ndarray]:
    arguments = program.arguments()
    run(function, arguments)
    return [argument for argument in arguments if isinstance(argument, np.ndarray)]


@bounded(60)
@given(programs())
def test_text_comes_back_and_verifies(program):
    function = parse_function(program.text)
    verify(function)
    assert print_function(function) == program.text


@bounded(60)
@given(programs())
def test_passes_change_no_result(program):
    before = interpreted(program, parse_function(program.text))
    for step in pipeline.PASSES:
        function = parse_function(program.text)
        pipeline.run(function, [step])
        for one, other in zip(before, interpreted(program, function), strict=True):
            assert one.tobytes() == other.tobytes(), step.__name__


@bounded(40)
@given(programs())
def test_compiled_code_agrees_with_the_interpreter(program):
    function = parse_function(program.text)
    expected = interpreted(program, function)
    pipeline.run(function)
    arguments = program.arguments()
    Kernel(function)(*arguments)
    for one, other in zip(expected, arguments[:4], strict=True):
        np.testing.assert_array_equal(one, other)
