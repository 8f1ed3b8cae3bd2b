"""The parts of ``rtm.py``: where it runs, what it reverses, and its tables."""
