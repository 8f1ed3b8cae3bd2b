"""Elastic waves: velocities and stresses on a staggered grid."""
