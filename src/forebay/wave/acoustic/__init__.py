"""Acoustic waves: pressure in a medium of constant density."""
