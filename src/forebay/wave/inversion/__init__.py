"""What an inversion is made of: misfits, unknowns, sources, and what is kept on the disk."""
