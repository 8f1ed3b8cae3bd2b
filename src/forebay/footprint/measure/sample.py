"""One measured run of a function: what a model is learned from, and what its file keeps."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """What one run needed."""

    lengths: tuple[int, ...]
    """the lengths of all axes of all inputs, one after the other"""
    host: int
    """peak bytes on the host above the inputs"""
    seconds: float
    device: int | None = None
    """peak bytes on the device above the inputs, where there is one"""
    output_shape: tuple[int, ...] | None = None
    output_dtype: str | None = None
    features: dict[str, float] = field(default_factory=dict)
    """what the user's function found in the data"""
    parameters: dict[str, float] = field(default_factory=dict)
    """what the function was called with beside its inputs"""
    seed: int = 0
    """of the random data"""
    floor: int = 0
    """the least that could have been measured"""
    inputs: int | None = None
    """bytes of all inputs together; None where nobody counted them"""
    strided: bool = False
    """whether the inputs were views with gaps between their elements"""
    kept: int = 0
    """bytes by which the process grows with every further call"""
    children: int = 0
    """bytes of processes that the function started; they are part of the peak on the host"""
    started: bool = False
    """whether it started any, seen or not"""

    @property
    def peak(self) -> int:
        """Peak bytes where the inputs are: on the device, where there is one."""
        return self.host if self.device is None else self.device

    @property
    def point(self) -> tuple[float, ...]:
        """Where the sample lies: its lengths, then its parameters, then its features, both by name."""
        return (*self.called, *(self.features[name] for name in sorted(self.features)))

    @property
    def called(self) -> tuple[float, ...]:
        """What was chosen: its lengths, then its parameters by name."""
        return (*self.lengths, *(self.parameters[name] for name in sorted(self.parameters)))
