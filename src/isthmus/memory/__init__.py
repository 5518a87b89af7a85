"""Lifetimes to offsets: the static arena planner."""
