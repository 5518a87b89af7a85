"""The element-wise functions under the names of NVIDIA's device library."""

from __future__ import annotations

from isthmus.language.math import *  # noqa: F403  (one set of functions under two names)
