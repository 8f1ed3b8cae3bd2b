"""What a state may be: matching one with another, and kinds beside tuples, lists and dicts."""
