"""Saved tensors: kept on the device or below it, counted, and given back as they were."""
