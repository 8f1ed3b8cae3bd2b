"""First derivatives between the points of a staggered grid, of any even order, and their closure at a free surface.

Away from a surface, the derivative from half points back to whole ones is the negative transpose of the one from whole
points to half ones, which is what keeps energy and makes the adjoint of a step a step. At a free surface both are
changed in the first few rows so that this stays true: with weights W of the whole rows and H of the half rows,

    W backward = -(H forward)^T,

both exact for polynomials of a low degree: summation by parts, after O'Reilly, Lundquist, Dunham and Nordström, "Energy
stable and high-order-accurate finite difference methods on staggered grids", Journal of Computational Physics, 2017.
Backward then takes what it differentiates to vanish at the surface, as the stresses on it do; from the second row on
nothing is assumed. The rows of the closure reach no further than the others, so the loops are the same.
"""

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError


def first_derivative(order: int) -> NDArray[np.float64]:
    """Return the staggered stencil of the first derivative: the weights at distances 1/2, 3/2, ..., (order - 1) / 2.

    Examples
    --------
    >>> first_derivative(4) * 24
    array([27., -1.])
    """
    if order < 2 or order % 2:
        raise WaveError(f"a stencil of order {order}: give an even order of at least 2")
    odd = range(1, order, 2)
    return np.array(
        [
            (-1) ** (distance // 2)
            / distance
            * prod(other**2 / abs(distance**2 - other**2) for other in odd if other != distance)
            for distance in odd
        ]
    )


def staggered_symbol(coefficients: NDArray[np.float64], angle: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return what a derivative multiplies a plane wave by, over i, for `angle` radians from one point to the next."""
    half = np.arange(len(coefficients)) + 0.5
    return np.asarray(2 * np.sin(np.multiply.outer(angle, half)) @ coefficients)


@dataclass(frozen=True, eq=False)
class Depth:
    """The derivatives along depth, whose weights depend on the row, and the weights of the rows in sums."""

    forward: NDArray[np.float64]
    """a row of weights for each half row z + 1/2: of the whole rows z - radius + 1 to z + radius"""
    backward: NDArray[np.float64]
    """a row of weights for each whole row z: of the half rows z - radius + 1/2 to z + radius - 1/2"""
    whole: NDArray[np.float64]
    """W, for each row"""
    half: NDArray[np.float64]
    """H, for each half row"""


def along_depth(order: int, rows: int, surface: int | None) -> Depth:
    """Make the derivatives for fields of `rows` rows, with a free surface at one of them or without."""
    radius, c = order // 2, first_derivative(order)
    weights = np.concatenate([-c[::-1], c])
    forward, backward = np.tile(weights, (rows, 1)), np.tile(weights, (rows, 1))
    whole, half = np.ones(rows), np.ones(rows)
    if surface is not None:
        closed, at_half, at_whole = closure(order)
        count = len(at_half)
        forward[:surface] = backward[:surface] = 0.0  # nothing is above it
        half[surface : surface + count], whole[surface : surface + count] = at_half, at_whole
        for row in range(count):
            for k in range(2 * radius):
                column, other = row + k - radius + 1, row + k - radius
                changed = closed[row, column] if 0 <= column < count else weights[k]
                forward[surface + row, k] = changed / at_half[row] if column >= 0 else 0.0
                changed = -closed[other, row] if 0 <= other < count else weights[k]
                backward[surface + row, k] = changed / at_whole[row] if other >= 0 else 0.0
    return Depth(forward, backward, whole, half)


@cache
def closure(order: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Find H forward for the first rows and columns below a free surface, and the weights H and W there.

    The conditions are linear in all three; among their solutions the one nearest to the stencil cut off at the surface
    is taken. Of order 8 it is exact for polynomials of degree 2, and the stable time step stays what it was.
    """
    radius, c = order // 2, first_derivative(order)
    count, degree = max(radius, 2), 2 if radius >= 4 else 1
    reach = count + radius + 1
    whole, half = np.arange(reach + 1.0), np.arange(reach) + 0.5
    plain = np.zeros((reach, reach + 1))
    for row in range(reach):
        for k in range(radius):
            for column, sign in ((row + 1 + k, 1), (row - k, -1)):
                if 0 <= column <= reach:
                    plain[row, column] = sign * c[k]
    unknown = count * count
    equations, right = [], []
    for power in range(degree + 1):
        for row in range(count):
            along_row, along_column = np.zeros((2, unknown + 2 * count))
            along_row[row * count : (row + 1) * count] = whole[:count] ** power
            along_column[row : row + unknown : count] = half[:count] ** power
            if power:
                along_row[unknown + row] = -power * half[row] ** (power - 1)
                along_column[unknown + count + row] = power * whole[row] ** (power - 1)
            equations += [along_row, along_column]
            end = row + radius  # past the last half row in which the column has a weight
            right += [
                -(plain[row, count:] @ whole[count:] ** power),
                -(plain[count:end, row] @ half[count:end] ** power) - (row == 0 and power == 0),
            ]
    start = np.concatenate([plain[:count, :count].ravel(), np.ones(2 * count)])
    start[unknown + count] = 0.5
    matrix = np.array(equations)
    solution = start + np.linalg.lstsq(matrix, np.array(right) - matrix @ start, rcond=1e-12)[0]
    return (
        solution[:unknown].reshape(count, count),
        solution[unknown : unknown + count],
        solution[unknown + count :],
    )


@cache
def steepest(order: int, free_surface: bool) -> float:
    """Return the largest factor by which a derivative along depth, of points a metre apart, multiplies a field."""
    inside = 2 * float(np.abs(first_derivative(order)).sum())
    if not free_surface:
        return inside
    rows, radius = 8 * order, order // 2
    depth = along_depth(order, rows + radius, 0)
    matrix = np.zeros((rows, rows))
    for row in range(rows):
        for k in range(2 * radius):
            if 0 <= row + k - radius + 1 < rows:
                matrix[row, row + k - radius + 1] = depth.forward[row, k]
    scaled = np.sqrt(depth.half[:rows, None]) * matrix / np.sqrt(depth.whole[:rows])
    return max(inside, float(np.linalg.norm(scaled, 2)))
