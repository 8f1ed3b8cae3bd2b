"""Samples in forks of a warmed process, and the processes that a function starts."""
