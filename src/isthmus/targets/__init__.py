"""One folder per architecture: its description; `llvm` is the emitter that they share."""

from isthmus.targets.registry import host_target, target_named

__all__ = ["host_target", "target_named"]
