"""Pressure waves in rock that is transversely isotropic with a vertical axis."""
