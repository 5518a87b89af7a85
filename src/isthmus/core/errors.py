"""The error tree.

    IsthmusError                    every error that Isthmus raises on purpose
    |-- UserError                   the input is wrong; printed as one message, no traceback
    |   |-- KernelError             kernel source; carries file, line, column and a caret
    |   |-- ParseError              IR text; carries line, column and a caret
    |   |-- ShapeError              shapes do not fit
    |   |-- DTypeError              element types do not fit
    |   |-- ProgramError            a training program or its file
    |   |-- CaptureError            a model that cannot be captured
    |   |-- DataError               a corpus, a tokenizer, a batch
    |   |-- CheckpointError         a checkpoint that cannot be read or written
    |   |-- TrainingError           a run that cannot go on (a loss that is not finite)
    |   |-- DeviceError             a device, driver or launch
    |   `-- ConfigError             a setting or environment variable
    |-- FallbackError               strict mode met a slower path than the one asked for
    `-- InternalError               an invariant of ours broke; carries the pass and the IR

Every class has a stable `code`, listed with an example and the cure in docs/errors.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.core.location import Location

__all__ = [
    "CaptureError",
    "CheckpointError",
    "ConfigError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "FallbackError",
    "InternalError",
    "IsthmusError",
    "KernelError",
    "ParseError",
    "ProgramError",
    "ShapeError",
    "TrainingError",
    "UserError",
]


class IsthmusError(Exception):
    """Base of every error that Isthmus raises on purpose."""

    code = "I000"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


class UserError(IsthmusError):
    """The input is wrong; the message says what was given, what is allowed, what to do."""

    code = "U000"


class KernelError(UserError):
    """A mistake in kernel source, shown as `file:line:col`, the line, a caret, one hint.

    `code` tells mistakes apart ("K101" and so on): see docs/errors.md. `callers` is where the
    helper kernels that lead to the mistake are called from, the innermost call first.
    """

    code = "K000"

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.location = location
        self.callers: list[Location] = []
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.code}]"]
        if self.location is not None:
            lines[0] = f"{self.location}: {lines[0]}"
            lines += self.location.excerpt()
        lines += [f"  in a helper called from {caller}" for caller in self.callers]
        if self.hint is not None:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class ParseError(UserError):
    """A mistake in IR text, shown as `name:line:col`, the line, a caret.

    `line` and `column` count from 1; `width` is how many characters the caret spans.
    """

    code = "R000"

    def __init__(
        self, message: str, *, name: str, text: str, line: int, column: int, width: int = 1
    ) -> None:
        super().__init__(message)
        self.name = name
        self.line = line
        self.column = column
        lines = text.splitlines()
        source = lines[line - 1] if line <= len(lines) else ""
        self.excerpt = f"  {source}\n  {' ' * (column - 1)}{'^' * max(1, width)}"

    def __str__(self) -> str:
        return (
            f"{self.name}:{self.line}:{self.column}: {self.message} [{self.code}]\n{self.excerpt}"
        )


class ShapeError(UserError):
    """Shapes do not fit."""

    code = "U100"


class DTypeError(UserError):
    """Element types do not fit."""

    code = "U101"


class ProgramError(UserError):
    """A training program, or the file that holds one, cannot be used."""

    code = "P000"


class CaptureError(UserError):
    """A model cannot be captured as a program."""

    code = "P100"


class DataError(UserError):
    """A corpus, a tokenizer or a batch cannot be used."""

    code = "D000"


class CheckpointError(UserError):
    """A checkpoint cannot be read or written."""

    code = "C000"


class TrainingError(UserError):
    """A training run cannot go on."""

    code = "T000"


class DeviceError(UserError):
    """A device, driver or launch failed."""

    code = "H000"


class ConfigError(UserError):
    """A setting or environment variable has a value that is not allowed."""

    code = "U102"


class FallbackError(IsthmusError):
    """Strict mode met a slower path than the one asked for."""

    code = "F000"


class InternalError(IsthmusError):
    """An invariant of Isthmus broke; please report it with the attached IR."""

    code = "X000"

    def __init__(self, message: str, *, stage: str | None = None, ir: str | None = None) -> None:
        super().__init__(message)
        self.stage = stage
        self.ir = ir
