"""Jobs that look for a model: the passes of an inversion over its shots, what it leaves behind, and its report."""
