"""Peaks of any executable, in any language: the kernel tells the largest resident size of a process when it ends.

The whole process counts, its code, its inputs and all: nobody else holds them.
"""

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from forebay.footprint.errors import FootprintError, RunError
from forebay.footprint.measure.process import check_platform, environment
from forebay.footprint.measure.sample import Sample

LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True)
class Command:
    """A command line in which ``{0}``, ``{1}``, ... stand for the lengths of the axes, ``{name}`` for a parameter."""

    line: str
    gauge_name: str = "ru_maxrss"
    exact: bool = True
    resolution: int = 256 * 1024
    gpu: None = None
    returned: str = ""
    dtypes: tuple[str, ...] = ()
    apart: bool = True
    makes_views: bool = False

    def words(self, lengths: tuple[int, ...], parameters: dict[str, float]) -> list[str]:
        """Return the command's words, with the lengths and parameters filled in."""
        try:
            return shlex.split(self.line.format(*lengths, **parameters))
        except (IndexError, KeyError, ValueError) as error:
            raise FootprintError(
                f"cannot fill lengths {lengths} into command {self.line!r} ({error}): write {{0}} for the first axis"
            ) from error

    def executable(self) -> Path | None:
        """Return the program that will run; None where there is none."""
        try:
            words = shlex.split(self.line)
        except ValueError as error:
            raise FootprintError(f"cannot read command {self.line!r} ({error}): write it as for a shell") from error
        if not words:
            raise FootprintError("command= is empty: write it as for a shell, like './op {0} {1}'")
        program = shutil.which(words[0])
        return Path(program) if program else None

    def measure(
        self,
        lengths: tuple[int, ...],
        seed: int = 0,
        timeout: float | None = None,
        views: bool = False,
        parameters: dict[str, float] | None = None,
    ) -> Sample:
        """Run the command once."""
        check_platform()
        called = dict(parameters or {})
        words = self.words(lengths, called)
        if self.executable() is None:
            raise FootprintError(f"there is no executable {words[0]!r}: give its path, and make it executable")
        try:
            run = subprocess.run(
                [sys.executable, "-I", "-S", LAUNCHER, *words],
                capture_output=True,
                text=True,
                timeout=timeout,
                env=os.environ | environment(),
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{shlex.join(words)} took more than {timeout:.0f} s") from None
        try:
            status, peak, seconds, floor = run.stdout.split()
        except ValueError:
            raise FootprintError(f"{shlex.join(words)} could not be run: {run.stderr.strip()[-300:]}") from None
        if status != "0":
            raise RunError(f"{shlex.join(words)} ended with status {status}: {run.stderr.strip()[-300:]}")
        return Sample(lengths, int(peak), float(seconds), parameters=called, seed=seed, floor=int(floor), inputs=0)

    def versions(self) -> dict[str, str]:
        """Return nothing: the program's libraries are its own, and its hash stands for them."""
        return {}

    def close(self) -> None:
        """Do nothing: nothing is kept between runs."""
