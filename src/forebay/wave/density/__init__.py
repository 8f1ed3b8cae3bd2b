"""Acoustic waves in a medium of variable density."""
