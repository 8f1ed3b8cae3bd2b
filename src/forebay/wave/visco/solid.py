"""The standard linear solid with one relaxation: its modulus, and that in steps of time.

With g = 1 / Q the attenuation at a reference frequency, where it is largest, S = i times a frequency over that one,
x = g + c and c = sqrt(1 + g^2), the modulus over the density, where waves of that frequency travel at a velocity v, is

    M = v^2 h / x (1 + x S) / (1 + S / x),    h = (1 + 1 / c) / 2.

It is v^2 h / x for the slowest waves and v^2 h x for the fastest ones. In steps of dt, S is taken for

    S = (1 - z) / (1 + z) / T,    T = tan(pi frequency dt),

with z a delay by one step (a bilinear transform): the modulus at the reference frequency, and for the slowest and the
fastest waves, is that above, and at no frequency of the steps does it give energy. At a frequency F it is that of

    tan(pi F dt) / T times the reference frequency, in place of F,

and 1 / Q changes by no larger a part than the frequency does. `stability` keeps that at 1 %: where dt is as small as
waves of F and of the reference frequency ask for, pi F dt is below 0.174. The modulus of steps is

    M = v^2 s (1 - f z) / (1 - e z),    s = h (x + T) / (1 + x T),    f = (x - T) / (x + T),    d = f - e.
"""

from typing import Any

import numpy as np

LAGGING = "lag"
"""Name of the field of a state by which pressure knows of strains before."""


def speeds(attenuation: Any) -> tuple[Any, Any]:
    """Return the velocities of the slowest and of the fastest waves, over that at the reference frequency.

    Examples
    --------
    >>> [round(float(each), 3) for each in speeds(np.array(1 / 20))]
    [0.975, 1.025]
    """
    _, x, h = _shape_of(attenuation)
    return np.sqrt(h / x), np.sqrt(h * x)


def excess_of(attenuation: Any) -> Any:
    """Return x - 1, from which steps compute d and f: it is as exact as the attenuation, however little that is."""
    return attenuation + attenuation**2 / (1 + np.sqrt(1 + attenuation**2))


def filter_of(attenuation: Any, tangent: float) -> tuple[Any, Any, Any]:
    """Return s, d and f of a modulus."""
    _, x, h = _shape_of(attenuation)
    late, early = x + tangent, 1 + x * tangent
    return h * late / early, 4 * attenuation * x * tangent / (late * early), (x - tangent) / late


def filter_slopes(attenuation: Any, tangent: float) -> tuple[Any, Any, Any]:
    """Return the derivatives of the logarithm of s, of d and of f with respect to the attenuation."""
    c, x, h = _shape_of(attenuation)
    late, early, rise = x + tangent, 1 + x * tangent, x / c
    of_fade = 2 * tangent * rise / late**2
    stiffer = rise / late - tangent * rise / early - attenuation / (2 * h * c**3)
    return stiffer, of_fade + 2 * tangent * rise / early**2, of_fade


def _shape_of(attenuation: Any) -> tuple[Any, Any, Any]:
    c = np.sqrt(1 + attenuation**2)
    return c, attenuation + c, 0.5 + 0.5 / c
