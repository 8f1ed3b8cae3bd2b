"""Bytes as budgets name them."""

from forebay.units import to_text


def enough(nbytes: int) -> str:
    """Write bytes in three digits that are not less.

    Examples
    --------
    >>> enough(1024), enough(3_000_000_001)
    ('1.03kB', '3.01GB')
    """
    step = 10 ** max(0, len(str(nbytes)) - 3)
    return to_text(-(-nbytes // step) * step)
