"""The bytes of a function's inputs, from those of the samples: a factory may make them of any shape."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from forebay.footprint.fit.peaks import fit
from forebay.footprint.fit.terms import candidates
from forebay.footprint.measure.inputs import InputLayout
from forebay.footprint.measure.sample import Sample


def learn_inputs(layout: InputLayout, itemsize: int, samples: Sequence[Sample]) -> Callable[[Sequence[int]], int]:
    """Return the bytes of all inputs as a function of the lengths of all of their axes.

    Examples
    --------
    >>> pairs = [Sample((n, m), 0, 1.0, inputs=2 * 8 * n * m) for n, m in ((3, 4), (5, 6))]
    >>> learn_inputs(InputLayout.of(2), 4, pairs)((10, 10))
    1600
    """
    counted = [(sample.lengths, float(sample.inputs)) for sample in samples if sample.inputs is not None]
    volumes = [layout.volume(lengths) for lengths, _ in counted]
    shares = {weight / volume for (_, weight), volume in zip(counted, volumes, strict=True)} or {float(itemsize)}
    if len(shares) == 1:
        (share,) = shares
        return lambda lengths: ceil(share * layout.volume(lengths))
    terms = candidates(replace(layout, parameters=()))
    fitted = fit([lengths for lengths, _ in counted], volumes, [weight for _, weight in counted], terms, 8.0)
    return lambda lengths: ceil(fitted.estimate(np.array([lengths], dtype=float))[0])
