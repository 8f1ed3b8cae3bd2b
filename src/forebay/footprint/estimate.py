"""What a model says of one run of a function before it happens."""

from dataclasses import dataclass

import numpy as np

from forebay.units import Budget, seconds_to_text, to_text


@dataclass(frozen=True)
class Estimate:
    """Peak bytes above the inputs, and what else is known of a run."""

    bytes: int
    """the likeliest peak"""
    upper: int
    """what the peak exceeds only with the stated risk"""
    risk: float
    output_shape: tuple[int, ...] | None
    """None where the output is not an array, or its shape does not follow from the input's"""
    output_dtype: np.dtype[np.generic] | None
    seconds: float
    """the likeliest duration"""
    place: str = "host"
    """where these bytes are: the device for functions whose arrays live there, the host for all others"""
    host_bytes: int | None = None
    """for a function on the device: the likeliest peak on the host beside it"""
    host_upper: int | None = None
    """for a function on the device: the bound of that"""
    kept: int = 0
    """bytes by which the process grows with every such run, at most: a leak"""

    def binds(self, budget: Budget) -> str:
        """Return which of the tiers of a budget this run fills most.

        Examples
        --------
        >>> run = Estimate(10**9, 11 * 10**8, 0.01, None, None, 1.0, "device", 10**6, 2 * 10**6)
        >>> run.binds(Budget(device="8GB", host="64GB"))
        'device'
        """
        uppers = {self.place: self.upper}
        if self.host_upper is not None:
            uppers["host"] = self.host_upper
        return max(uppers, key=lambda tier: uppers[tier] / max(budget[tier], 1) if tier in budget.tiers else 0.0)

    def __str__(self) -> str:
        output = "no array" if self.output_shape is None else f"{self.output_dtype} {self.output_shape}"
        return (
            f"{to_text(self.bytes)} on the {self.place}, at most {to_text(self.upper)} (risk {self.risk:g}), "
            f"about {seconds_to_text(self.seconds)}, gives {output}"
        )
