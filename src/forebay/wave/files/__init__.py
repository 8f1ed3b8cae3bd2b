"""Fields and shots in files: SEG-Y, Zarr and NumPy's own."""
