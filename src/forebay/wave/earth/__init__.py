"""The earth as waves see it: grids, models, and what a time step and a wavelet ask of them."""
