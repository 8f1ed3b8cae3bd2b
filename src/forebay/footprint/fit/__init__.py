"""What the samples say: the terms of the peaks, the output's shape, the seconds, and what remains in doubt."""
