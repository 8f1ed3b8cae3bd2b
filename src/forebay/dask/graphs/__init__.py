"""Whole graphs of Dask: what they need on each worker, how long they take, and the chunks that suit them."""
