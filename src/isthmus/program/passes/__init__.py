"""Clean-up of captured graphs: constants, views, equal nodes, dead nodes."""
