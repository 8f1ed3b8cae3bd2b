"""A pool of resident arrays: on the host, and on the device when they are needed."""
