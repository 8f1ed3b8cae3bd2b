"""A first sweep that finds out what each step costs, and the way back from the snapshots that it has kept."""

from forebay.schedule.learning.sweep import LearningSweep as LearningSweep
