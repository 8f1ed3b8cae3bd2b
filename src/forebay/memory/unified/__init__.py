"""Unified memory: one managed, pooled, prefetching allocator behind several libraries."""
