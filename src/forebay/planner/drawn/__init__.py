"""Charts and pages of plans and of what carried them out: steps, lanes and memory over time."""
