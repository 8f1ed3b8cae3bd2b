"""SEG-Y and SU: velocities and shots as they come, and images and shots written as the standard says.

Positions are in metres, depth first and x last; in three dimensions y is between them.
"""
