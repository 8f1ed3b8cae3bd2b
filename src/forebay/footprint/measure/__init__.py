"""Peaks measured: the process in which samples run, the gauges of memory, and what a measurement belongs to."""
