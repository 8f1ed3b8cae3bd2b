"""The parts of `rtm`: where it runs, what it reverses, and its tables."""
