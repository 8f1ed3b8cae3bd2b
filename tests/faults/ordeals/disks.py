"""Disks that are full or become read-only under a job: it says so, and goes on to the same bits when there is room."""

import subprocess

from tests.faults.ordeals.jobs import complaint, image, litter, prepared, run


def mounted(place, how):
    """Mount or change a small disk, which is memory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", how, "tmpfs", str(place)], check=True)


def undergo(folder, count, random):
    """Give a job so many disks of too few bytes, and as many that nobody may write to."""
    path, said = prepared(folder), folder / "said"
    run(path, "--output", folder / "alone", said=said)
    expected = image(folder / "alone")
    needed = sum(file.stat().st_size for file in (folder / "alone").rglob("*") if file.is_file()) + 600_000
    told = {"full": 0, "read-only": 0, "refused": 0, "short of shots": 0, "enough": 0, "wrong": []}
    place = folder / "disk"
    place.mkdir()
    for number in range(2 * count):
        full = number % 2 == 0
        mounted(place, f"size={int(random.uniform(0.02, 1.1) * needed) // 4096 * 4}k" if full else "size=64m")
        try:
            (place / "out").mkdir()
            if not full:
                if random.random() < 0.5:  # a job that is finished, but for its image
                    run(path, "--output", place / "out", said=said)
                mounted(place, "remount,ro")
            code, text = run(path, "--output", place / "out", said=said)
            told["full" if full else "read-only"] += 1
            told["refused"] += code == 2
            told["short of shots"] += code == 1
            told["enough"] += code == 0
            if problem := complaint(code, text):
                told["wrong"].append(problem)
            mounted(place, "remount,rw,size=64m")
            code, text = run(path, "--output", place / "out", said=said)
            if code or image(place / "out") != expected or litter(place / "out"):
                told["wrong"].append(f"afterwards {code}: {litter(place / 'out')} {text[-300:]}")
        finally:
            subprocess.run(["umount", str(place)], check=True)
    return told
