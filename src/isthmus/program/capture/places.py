"""Where in the model an operation comes from: "gpt.py:41 in Block.forward"."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from isthmus.program.capture.torch_private import set_place

__all__ = ["SourcePlaces"]

_NOT_THE_MODEL = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


def _user_place() -> str:
    """The innermost line of the caller's that is neither PyTorch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((*_NOT_THE_MODEL, "<")):
            name = code.co_qualname.replace("<locals>.", "")
            return f"{Path(code.co_filename).name}:{frame.f_lineno} in {name}"
        frame = frame.f_back
    return ""


class SourcePlaces(TorchFunctionMode):
    """Marks what is traced, and later its gradient, with the line of the model that asked for it.

    latest: the line of the last operation, for errors while tracing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latest = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.latest = _user_place()
        set_place(self.latest)
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                _mark_gradient(tensor.grad_fn, self.latest)
        return result


def _mark_gradient(node: torch.autograd.graph.Node, place: str) -> None:
    """Mark the backward nodes that one operation made."""
    pending = [node]
    while pending:
        found = pending.pop()
        notes = cast("dict[str, Any]", found.metadata)  # a property that is declared as a method
        if "place" in notes or found.name().endswith("AccumulateGrad"):
            continue
        notes["place"] = place
        found.register_prehook(_at(place))
        pending += [following for following, _ in found.next_functions if following is not None]


def _at(place: str) -> Callable[[Any], None]:
    def prehook(_gradients: Any) -> None:
        set_place(place)

    return prehook
