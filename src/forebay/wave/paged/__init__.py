"""Waves whose fields are larger than the memory they are computed in: slabs of planes that pass through a window."""
