"""Settings for all tests: the IR is checked around every pass."""

from __future__ import annotations

import os

os.environ.setdefault("ISTHMUS_VERIFY", "1")
