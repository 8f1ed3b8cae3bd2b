"""Where schedules on levels with prices split their stretches."""
