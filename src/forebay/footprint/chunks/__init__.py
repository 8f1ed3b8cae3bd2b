"""The chunks of an array in which a function stays inside a budget of bytes: a pure planner."""
