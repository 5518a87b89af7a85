"""Dead code: pure operations whose results nobody reads."""

from __future__ import annotations

from isthmus.ir.core import Function, Region
from isthmus.ir.optable import op_def

__all__ = ["remove_dead_code"]


def remove_dead_code(function: Function) -> None:
    """Erase pure operations and unmasked-effect-free loads without users, last ones first."""
    _clean(function.body)


def _clean(region: Region) -> None:
    for op in reversed(list(region.ops)):
        for inner in op.regions:
            _clean(inner)
        definition = op_def(op.name)
        removable = definition.is_pure or definition.traits == {"reads"}
        if removable and not any(result.uses for result in op.results):
            op.erase()
