"""Running a block a second time: with the arguments, the module state and the random numbers of its first run."""
