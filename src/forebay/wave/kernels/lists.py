"""Parts of antennas as plain lists for a GPU: which cell of which field each value goes to or comes from."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lists = dict[str, NDArray[Any]]
LAST = 3
"""The number of the array that is not a field, after as many as three of those."""


def senders(
    parts: Sequence[Any], fields: Sequence[str], get: Callable[[Any], Any], silent: Any, remembering: Any = None
) -> Lists:
    """List the cells that parts of an antenna touch, for each field that they act on.

    Parameters
    ----------
    parts
        Of an antenna, all acting on some of `fields`.
    fields
        Names of the fields, in the order in which the kernel is given them.
    get
        Brings arrays to the host.
    silent
        ``silent(name, cells)`` tells into which cells of a field nothing is sent.
    remembering
        ``remembering(name, cells)`` returns what else takes a part of what is sent into a field: which cells, their
        places in the array after the last field, and the parts.
    """
    which, touched, counts, sharers, weights, factors = (list[Any]() for _ in range(6))
    for part in parts:
        points, columns = part.points, get(part.columns)
        cells, share = get(points.touched), np.diff(get(points.shares).astype(np.int64))
        for name in part.fields:
            kept = ~silent(name, cells)
            goals = [(fields.index(name), kept, cells[kept], np.ones(kept.sum()))]
            for within, places, parts_of in remembering(name, cells) if remembering else ():
                goals.append((LAST, within & kept, places[kept[within]], parts_of[kept[within]]))
            for number, keep, places, scales in goals:
                shared = np.repeat(keep, share)
                which.append(np.full(len(places), number))
                touched.append(places)
                counts.append(share[keep])
                sharers.append(columns[get(points.sharers)[shared]])
                weights.append(get(points.share_weights)[shared])
                factors.append(get(part.factors)[keep] * scales)
    return {
        "which": _joined(which, np.int64),
        "touched": _joined(touched, np.int64),
        "shares": np.concatenate([[0], np.cumsum(_joined(counts, np.int64))]),
        "sharers": _joined(sharers, np.int64),
        "share_weights": _joined(weights, np.float64),
        "factors": _joined(factors, np.float64),
    }


def listeners(parts: Sequence[Any], fields: Sequence[str], get: Callable[[Any], Any]) -> Lists:
    """List the points of parts, the cells around each, and the field that it hears, the first where it hears all."""
    hearing, counts, near, weights, columns = (list[Any]() for _ in range(5))
    for part in parts:
        hearing.append(np.full(part.points.count, fields.index(part.fields[0])))
        counts.append(np.diff(get(part.points.starts).astype(np.int64)))
        near.append(get(part.points.cells))
        weights.append(get(part.points.weights))
        columns.append(get(part.columns))
    return {
        "hearing": _joined(hearing, np.int64),
        "starts": np.concatenate([[0], np.cumsum(_joined(counts, np.int64))]),
        "near": _joined(near, np.int64),
        "weights": _joined(weights, np.float64),
        "columns": _joined(columns, np.int64),
    }


def _joined(pieces: list[Any], kind: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *pieces]).astype(kind)
