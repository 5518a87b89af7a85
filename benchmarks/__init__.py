"""Speed against named peers: ratios of medians, contestants in alternating processes."""
