"""Pictures and pages from plans, metrics and plain arrays."""
