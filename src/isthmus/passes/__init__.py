"""IR to IR, knowing no target: canonicalise, share, analyse, restructure."""
