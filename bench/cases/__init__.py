"""What the benchmarks run on: waves, loops, networks, and the baselines that they are set beside."""
