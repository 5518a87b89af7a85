"""Consoles: results go to standard output, progress and errors to standard error."""

from __future__ import annotations

from rich.console import Console

__all__ = ["error_console", "output_console"]


def output_console() -> Console:
    """Where results go."""
    return Console(highlight=False)


def error_console() -> Console:
    """Where progress and errors go, so that results can be piped."""
    return Console(stderr=True, highlight=False)
