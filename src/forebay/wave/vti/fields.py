"""Names of the fields of VTI waves, and of what a gradient adds up."""

FIELDS = ("p", "p_old", "r", "r_old")
"""Of a state: the horizontal stress, which is heard as pressure, the vertical strain, and both before."""
SUMS = ("horizontal", "mixed", "stiffness")
"""Of a gradient, see `VTI.add_sensitivity`."""
