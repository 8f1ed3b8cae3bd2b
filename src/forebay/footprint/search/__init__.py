"""Which samples to run: tiny shapes that separate the terms, until the bound is tight or the budget is spent."""
