"""Pressure waves in rock that is transversely isotropic about an axis of any tilt."""
