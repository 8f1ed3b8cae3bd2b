"""Streams, slabs, copies and kernels on an NVIDIA GPU; loaded on first use, never by `import forebay`."""
