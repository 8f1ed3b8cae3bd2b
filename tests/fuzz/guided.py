"""Inputs for one reader that are guided by what its code does, where atheris is installed.

python -m tests.fuzz.guided READER SECONDS    tries, for so long of the processor, and tells as JSON what went wrong
"""

import json
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from time import process_time


def guide(name, seconds):
    """Try inputs in this process until the time is over, and print what came of them; it does not return."""
    import atheris

    with atheris.instrument_imports(include=["forebay"]):
        from tests.fuzz.campaign import PATIENCE, failure_in_time, failure_of, ring, seeds_of
        from tests.fuzz.readers import READERS
    warnings.simplefilter("ignore")
    reader, counts, wrong, refused = READERS[name], Counter(), {}, 0
    place = tempfile.TemporaryDirectory()
    folder, corpus = Path(place.name) / "work", Path(place.name) / "corpus"
    folder.mkdir(), corpus.mkdir()
    for number, sound in enumerate(seeds_of(reader)):
        (corpus / str(number)).write_bytes(sound)
        failure_of(reader, sound, folder)  # loads all that it needs, and may compile
    signal.signal(signal.SIGPROF, ring)
    end = process_time() + seconds

    def mutate(data, most, seed):
        """Change an input as the campaigns do, so that what stands in it still has a form."""
        random = Random(seed)
        return reader.mutate(data, random)[:most] if random.random() < 0.7 else atheris.Mutate(data, most)

    def try_one(data):
        nonlocal refused
        counts["inputs"] += 1
        failure = failure_in_time(reader, data, folder)
        refused += failure == ""
        if failure:
            wrong[failure] = wrong.get(failure, 0) + 1
            print(failure, data[:400], file=sys.stderr)
        if process_time() > end:
            print(json.dumps({"inputs": counts["inputs"], "refused": refused, "wrong": wrong}), flush=True)
            place.cleanup()
            os._exit(0)

    options = ["-rss_limit_mb=4096", "-max_len=20000", "-verbosity=0"]
    # The clock is ours: that of libFuzzer takes a machine that others use for an input that hangs.
    options += [f"-timeout={2 * PATIENCE:.0f}", f"-artifact_prefix={place.name}/", str(corpus)]
    atheris.Setup([sys.argv[0], *options], try_one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    guide(sys.argv[1], float(sys.argv[2]))
