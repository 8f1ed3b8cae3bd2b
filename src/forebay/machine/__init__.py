"""What engine, pool and torch stand on: arrays of each library, memory, lanes and waits; host, cuda and virtual."""
