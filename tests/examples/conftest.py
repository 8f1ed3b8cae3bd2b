"""The operators of `examples/` are what footprints are tried on; the child processes find them on the same path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))
