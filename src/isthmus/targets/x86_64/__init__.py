"""x86-64: from SSE4.2 to AVX-512."""

from isthmus.targets.x86_64.target import describe, describe_host

__all__ = ["describe", "describe_host"]
