"""Kernels that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.language_kernels import build_body

from isthmus.core.errors import KernelError


@pytest.fixture
def refuse() -> Callable[..., KernelError]:
    """`refuse(body, code)`: the KernelError that building `body` raises, with its code checked."""

    def check(body: str, code: str, helpers: str = "", **constants: Any) -> KernelError:
        with pytest.raises(KernelError) as caught:
            build_body(body, helpers, **constants)
        assert caught.value.code == code, str(caught.value)
        return caught.value

    return check
