"""What physics share whose layers go ahead in a sweep of their own."""
