"""Pressure waves in rock that takes energy from them: a standard linear solid."""
