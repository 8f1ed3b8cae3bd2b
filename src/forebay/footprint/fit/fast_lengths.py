"""Lengths that Fourier transforms like: the smallest product of small primes that is long enough."""

from bisect import bisect_left
from functools import cache

PRIMES = (2, 3, 5, 7, 11)
LARGEST = 2**62
"""Up to here products are listed; there are some hundred thousand."""


def next_fast_len(length: int, largest: int = 11) -> int:
    """Return the smallest number that is at least `length` and has no prime factor above `largest`.

    SciPy pads complex transforms so with 11, and real ones with 5.

    Examples
    --------
    >>> next_fast_len(97), next_fast_len(97, 5), next_fast_len(128)
    (98, 100, 128)
    """
    bound = 2**16 if length <= 2**16 else LARGEST
    products = _products(largest, bound)
    return products[bisect_left(products, max(int(length), 1))]


@cache
def _products(largest: int, bound: int) -> list[int]:
    """List the products of primes up to `largest` that are at most `bound`, which is a power of two."""
    products = [1]
    for prime in PRIMES:
        if prime <= largest:
            ahead = list(products)
            while ahead := [number * prime for number in ahead if number * prime <= bound]:
                products += ahead
    return sorted(products)
