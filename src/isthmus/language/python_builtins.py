"""Python's own functions as kernels know them: min, max, len, int, isinstance and a few more."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from isthmus.language import math, operations
from isthmus.language.emitter import Emitter, describe
from isthmus.language.types import float32, int32
from isthmus.language.values import Builtin, Tensor, constexpr, is_runtime

__all__ = ["TABLE"]


def _extreme(name: str, host: Callable[..., Any]) -> Builtin:
    def build(emitter: Emitter, *values: Any, propagate_nan: Any = None) -> Any:
        items = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
        if not items:
            emitter.fail("K107", f"{host.__name__} needs at least one value")
        if not any(isinstance(item, Tensor) for item in items):
            return host(items)
        result = items[0]
        for item in items[1:]:
            result = operations.extreme(emitter, name, result, item, propagate_nan)
        return result

    return Builtin(host.__name__, build)


def _absolute(emitter: Emitter, x: Any) -> Any:
    return math.abs.build(emitter, x) if isinstance(x, Tensor) else builtins.abs(x)


def _length(emitter: Emitter, x: Any) -> int:
    if isinstance(x, Tensor):
        if not x.shape:
            emitter.fail("K207", f"{describe(x)} has no length")
        return x.shape[0]
    return builtins.len(x)


def _convert(host: Callable[..., Any], to: Any) -> Callable[..., Any]:
    def build(emitter: Emitter, x: Any = 0) -> Any:
        if not isinstance(x, Tensor):
            try:
                return host(x)
            except (TypeError, ValueError) as error:
                emitter.fail("K107", f"{host.__name__}({x!r}): {error}")
        if to is None:
            return emitter.truth(x)
        kept = x.dtype.is_int() and not x.dtype.is_bool() if to is int32 else x.dtype.is_floating()
        return x if kept else emitter.cast(x, to)

    return build


def _is_instance(emitter: Emitter, value: Any, kinds: Any) -> bool:
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if isinstance(kind, tuple):
            if _is_instance(emitter, value, kind):
                return True
        elif kind is constexpr:
            if not is_runtime(value):
                return True
        else:
            if isinstance(kind, Builtin):
                kind = _TYPES.get(kind.name)
            if kind is None or not isinstance(kind, type):
                emitter.fail("K107", f"isinstance needs types, got {describe(kinds)}")
            if isinstance(value, kind):
                return True
    return False


def _print(emitter: Emitter, *values: Any, **_options: Any) -> None:
    texts = " ".join(str(value) for value in values if not isinstance(value, Tensor))
    blocks = [value for value in values if isinstance(value, Tensor)]
    operations.device_print.build(emitter, texts, *blocks)


def _sequence(emitter: Emitter, items: Any = ()) -> tuple[Any, ...]:
    if isinstance(items, Tensor):
        emitter.fail("K102", f"{describe(items)} is no sequence")
    return builtins.tuple(items)


def _range(emitter: Emitter, *bounds: Any) -> range:
    return builtins.range(*(emitter.static_int(bound, "a bound of range") for bound in bounds))


#: Name -> what it is inside a kernel.
TABLE: dict[str, Any] = {
    "min": _extreme("minimum", builtins.min),
    "max": _extreme("maximum", builtins.max),
    "abs": Builtin("abs", _absolute),
    "len": Builtin("len", _length),
    "int": Builtin("int", _convert(builtins.int, int32)),
    "float": Builtin("float", _convert(builtins.float, float32)),
    "bool": Builtin("bool", _convert(builtins.bool, None)),
    "str": Builtin("str", lambda _emitter, value: builtins.str(value)),
    "isinstance": Builtin("isinstance", _is_instance),
    "print": Builtin("print", _print),
    "tuple": Builtin("tuple", _sequence),
    "list": Builtin("list", _sequence),
    "range": Builtin("range", _range),
}
_TYPES = {
    "int": builtins.int, "float": builtins.float, "bool": builtins.bool, "str": builtins.str,
    "tuple": builtins.tuple, "list": builtins.tuple,
}  # fmt: skip
