"""How `fit` trains a model inside a budget: its blocks found, measured, planned, and run as the plan says."""
