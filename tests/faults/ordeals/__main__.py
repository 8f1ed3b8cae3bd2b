"""Go through ordeals and print what came of each as JSON: python -m tests.faults.ordeals FOLDER SEED NAME:COUNT..."""

import faulthandler
import json
import sys
from importlib import import_module
from pathlib import Path
from random import Random

HANGS = 600
"""Seconds after which an ordeal shows where all threads are, and ends."""


def main(folder, seed, *ordeals):
    """Undergo ordeals one after the other; the count of each is how often something is done to it."""
    for ordeal in ordeals:
        faulthandler.dump_traceback_later(HANGS, exit=True)
        name, _, count = ordeal.partition(":")
        undergo, place = import_module(f"tests.faults.ordeals.{name}").undergo, Path(folder, name)
        place.mkdir()
        print(json.dumps(undergo(place, int(count), Random(int(seed)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
