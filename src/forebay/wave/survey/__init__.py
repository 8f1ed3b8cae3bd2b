"""Surveys: shots, where they are, what they send, and how both meet a grid and its time steps."""
