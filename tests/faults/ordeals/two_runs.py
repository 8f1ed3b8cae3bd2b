"""Several runs of one job in one directory at once: one works, the others are refused, and the image is the same."""

from tests.faults.ordeals.jobs import complaint, ended, image, litter, prepared, run, started

AT_ONCE = 4


def undergo(folder, count, random):
    """Start so many runs, some at a time."""
    path, said = prepared(folder), folder / "said"
    run(path, "--output", folder / "alone", said=said)
    expected, told = image(folder / "alone"), {"runs": 0, "refused": 0, "finished": 0, "wrong": []}
    while told["runs"] < count:
        out, children = folder / f"out{told['runs']}", {}
        for number in range(AT_ONCE):
            log = folder / f"said{number}"
            children[started(path, "--output", out, said=log)] = log
        for child, log in children.items():
            code, text = ended(child), log.read_text()
            told["runs"] += 1
            told["refused"] += code == 2 and "another run works in" in text
            told["finished"] += code == 0
            if code not in (0, 2) or complaint(code, text):
                told["wrong"].append(f"{code}: {text[-300:]}")
        if image(out) != expected or litter(out):
            told["wrong"].append(f"another image, or {litter(out)}")
    return told
