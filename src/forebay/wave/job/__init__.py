"""Jobs: the migration of many shots, from a `job.toml` to an image and its report."""
