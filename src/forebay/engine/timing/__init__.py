"""Timing a loop, its links and what operations take the host, before a plan is made."""
