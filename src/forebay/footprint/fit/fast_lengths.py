"""Lengths that Fourier transforms like: the smallest product of small primes that is long enough."""

from functools import lru_cache


@lru_cache(maxsize=65536)
def next_fast_len(length: int, largest: int = 11) -> int:
    """Return the smallest number that is at least `length` and has no prime factor above `largest`.

    SciPy pads complex transforms so with 11, and real ones with 5.

    Examples
    --------
    >>> next_fast_len(97), next_fast_len(97, 5), next_fast_len(128)
    (98, 100, 128)
    """
    candidate = max(int(length), 1)
    while not _is_smooth(candidate, largest):
        candidate += 1
    return candidate


def _is_smooth(number: int, largest: int) -> bool:
    for prime in (2, 3, 5, 7, 11):
        if prime <= largest:
            while number % prime == 0:
                number //= prime
    return number == 1
