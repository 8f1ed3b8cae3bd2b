"""What the loops of all waves are made of: CUDA sources and their launches, Numba's compiler, stencils, rows."""
