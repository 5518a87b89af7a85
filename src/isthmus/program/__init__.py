"""A training step as data: capture, fusion, scheduling, file format, executor."""
