"""Specialise, compile, cache, load, launch: where language, passes, targets and hal meet."""
