"""Fitting a training step into a budget, from the bottom up.

- `blocks` finds the modules that are treated as one; `patch` stands in for their calls.
- `facts` is what is learned of a block: seconds, bytes, and what may be done with it; `measurement` looks into it.
- `fitplan` is what is decided: one choice for each block; `planning` makes it, `neighbours` takes blocks together.
- `profile` is what is known of iterations that begin alike; `tools` is what one device is worked on with.
- `iteration` is one forward and its backward; `carrying` runs a block as the plan says; `session` joins all of it.
"""
