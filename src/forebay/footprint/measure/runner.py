"""The seam between a search and what runs its samples: our child process, or a command."""

from typing import Protocol

from forebay.footprint.measure.sample import Sample


class Runner(Protocol):
    """Runs samples of one function."""

    @property
    def gauge_name(self) -> str:
        """How it measures."""

    @property
    def exact(self) -> bool:
        """Whether that sees everything."""

    @property
    def resolution(self) -> int:
        """The bytes by which two readings of one peak may differ."""

    @property
    def gpu(self) -> str | None:
        """The kind of device, where one is measured."""

    @property
    def returned(self) -> str:
        """The type that the latest run returned; empty where nobody looked."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of all inputs of the latest run; empty where nobody looked."""

    @property
    def apart(self) -> bool:
        """Whether each sample has a process of its own, so that none hides what another left behind."""

    @property
    def makes_views(self) -> bool:
        """Whether it can give the function views with gaps between their elements."""

    def measure(
        self,
        lengths: tuple[int, ...],
        seed: int = 0,
        timeout: float | None = None,
        views: bool = False,
        parameters: dict[str, float] | None = None,
    ) -> Sample:
        """Run the function on inputs of these lengths, with these parameters."""

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries that the runs loaded, where they are known."""

    def close(self) -> None:
        """End whatever runs samples."""
