"""Work on the shots of a job, of any kind: tried, tried again, computed here or by the workers of a cluster."""
