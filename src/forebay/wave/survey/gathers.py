"""Traces of one source, found by where it was, though headers tell it a little differently in each."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FINER = 4
"""Parts of a tolerance within which positions are taken as one before any are compared."""


def near_each_other(positions: NDArray[Any], tolerance: float) -> NDArray[np.int64]:
    """Return a number for each position, the same for those within a tolerance, in metres, of each other.

    Neighbours of neighbours belong together, too: see `spreads`. Groups are numbered as they first come.

    Examples
    --------
    >>> near_each_other(np.array([[5.0, 50.02], [5.0, 0.0], [5.0, 49.99], [5.0, 0.01]]), 0.5).tolist()
    [0, 1, 0, 1]
    """
    cells = np.rint((positions - positions.min(axis=0)) * (FINER / tolerance))
    places, which = np.unique(cells, axis=0, return_inverse=True)
    if len(places) > 1:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components
        from scipy.spatial import cKDTree

        pairs = cKDTree(places).query_pairs(FINER, output_type="ndarray")
        links = coo_array((np.ones(len(pairs), bool), tuple(pairs.T)), shape=(len(places),) * 2)
        which = connected_components(links, directed=False)[1][which.ravel()]
    return in_order(which.ravel())


def in_order(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return numbers for groups, from 0 and in the order in which they first come."""
    _, first, which = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[which.ravel()]


def spreads(positions: NDArray[Any], group: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean position of each group, and how far from it one of the group is at most."""
    count = int(group.max()) + 1
    first = positions[np.unique(group, return_index=True)[1]]
    away = positions - first[group]  # of equal positions exactly zero
    members = np.bincount(group, minlength=count)
    means = np.stack([np.bincount(group, axis, count) / members for axis in away.T], axis=1)
    farthest = np.zeros(count)
    np.maximum.at(farthest, group, np.linalg.norm(away - means[group], axis=1))
    return first + means, farthest
