"""Arrays of NumPy, CuPy and torch: one file a library behind one Protocol."""
