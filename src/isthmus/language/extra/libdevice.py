"""The element-wise functions under the names of NVIDIA's device library.

The `fast_` variants are the same functions as the exact ones: there is no faster, less exact one.
"""

from __future__ import annotations

from typing import Any

from isthmus.language import math
from isthmus.language.emitter import Emitter
from isthmus.language.math import *  # noqa: F403  (one set of functions under two names)
from isthmus.language.operations import sigmoid
from isthmus.language.types import float32
from isthmus.language.values import Tensor, builtin

fast_expf = math.exp
fast_logf = math.log
fast_log2f = math.log2
fast_sinf = math.sin
fast_cosf = math.cos
fast_tanf = math.tan
fast_tanhf = math.tanh
fast_tanh = math.tanh
fast_erf = math.erf
fast_powf = math.pow
fast_dividef = math.div_rn
fast_sigmoid = sigmoid
isfinited = math.finitef
fabs = math.abs
llrint = math.rint


@builtin
def div_rz(emitter: Emitter, x: Any, y: Any) -> Tensor:
    """x / y in f32, rounded toward zero: an f32 quotient in f64 is exact enough to cut."""
    left, right = (emitter.tensor(side) for side in (x, y))
    quotient = emitter.binary(
        "/", emitter.cast(left, math.float64), emitter.cast(right, math.float64)
    )
    return emitter.cast(quotient, float32, "rtz")


@builtin
def log10(emitter: Emitter, x: Any) -> Tensor:
    """Base-10 logarithm."""
    return emitter.binary("*", math.log2.build(emitter, x), 0.3010299956639812)
