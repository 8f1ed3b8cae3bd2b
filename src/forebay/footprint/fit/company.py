"""What a footprint owes to more than shapes: gaps in the inputs, processes that are started, memory that is kept."""

from collections.abc import Sequence

from forebay.footprint.measure.sample import Sample

VISIBLE = 0.02
"""the bytes for each byte of a view below which it takes no more than an array without gaps"""


def more_of_views(samples: Sequence[Sample], resolution: float) -> float:
    """Return the bytes that a view with gaps takes more, for each byte of it.

    Examples
    --------
    >>> dense = Sample((1000,), 8000, 1.0, inputs=8000)
    >>> more_of_views([dense, Sample((1000,), 16_000, 1.0, inputs=8000, strided=True)], 0)
    1.0
    """
    more = 0.0
    for view in samples:
        dense = [sample.host for sample in samples if sample.point == view.point and not sample.strided]
        if view.strided and dense and view.inputs:
            more = max(more, (view.host - max(dense) - 2 * resolution) / view.inputs)
    if more <= VISIBLE:
        return 0.0
    return more + 2 * resolution / min(view.inputs or 1 for view in samples if view.strided)


def say_company(samples: Sequence[Sample], more: float, kept: float) -> list[str]:
    """Say what a user should know of it."""
    notes = []
    if more:
        notes.append(
            f"it takes {more:.2f} bytes more for each byte of an input that is a view with gaps, such as x[..., ::2]: "
            "ask predict(..., views=True) for those, as chunks() does"
        )
    if kept:
        notes.append(
            f"it keeps {kept:.3g} bytes an element with every call: a process that calls it again and again grows "
            "without end; chunks() counts all blocks of a worker"
        )
    children = max(samples, key=lambda sample: sample.children / max(sample.host, 1))
    if children.children:
        notes.append(
            f"it starts processes: up to {children.children / children.host:.0%} of its peak is theirs, as seen by "
            "looking every few milliseconds; with other numbers of them it needs other memory"
        )
    elif any(sample.started for sample in samples):
        notes.append("it starts processes that were not there at any look: what they need is not counted")
    return notes
