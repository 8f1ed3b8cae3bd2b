"""What the search for a plan stands on: schedules on levels, bounds on what they take, and quick simulations."""
