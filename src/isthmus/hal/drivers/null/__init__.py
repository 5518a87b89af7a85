"""A device without hardware: it records what it is given and computes nothing."""
