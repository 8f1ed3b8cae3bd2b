"""Go through one ordeal and print what came of it as JSON: python -m tests.faults.ordeals NAME FOLDER COUNT [SEED]."""

import faulthandler
import json
import sys
from importlib import import_module
from pathlib import Path
from random import Random

HANGS = 600
"""Seconds after which an ordeal shows where all threads are, and ends."""


def main(name, folder, count, seed="1"):
    """Undergo an ordeal; `count` is how often something is done to it."""
    faulthandler.dump_traceback_later(HANGS, exit=True)
    undergo = import_module(f"tests.faults.ordeals.{name}").undergo
    print(json.dumps(undergo(Path(folder), int(count), Random(int(seed)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
