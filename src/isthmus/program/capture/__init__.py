"""Capture: a PyTorch training step as a program. The only package that imports PyTorch."""

from isthmus.program.capture.capture import capture
from isthmus.program.capture.initialisers import record_initialisers

__all__ = ["capture", "record_initialisers"]
