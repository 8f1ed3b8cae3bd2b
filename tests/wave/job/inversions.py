"""A small inversion job, and the same inversion of the same shots by `wave.invert`."""

from dataclasses import replace

from forebay.wave import AcousticModel, Shot, invert
from forebay.wave.job.inversion.asked import DATA

BOUNDS = (1400.0, 3400.0)
SEARCH = 'frequencies = [2.5, "all"]\niterations = 1\nbounds = [1400.0, 3400.0]'


def inversion_text(search=SEARCH, *, output="out", **tables):
    """Write a job; a table that is given by name replaces the usual one."""
    usual = {
        "model": 'name = "layers"\nshape = [24, 48]\nsmooth = 300.0',
        "geometry": "shots = 2\nsource_depth = 100.0\nreceiver_depth = 100.0\nreceiver_spacing = 200.0",
        "data": "dt = 0.014\nlength = 2.4",
        "wavelet": "frequency = 1.3",
        "physics": "absorb = 8",
        "memory": 'host = "8MB"',
        "run": 'device = "cpu"\nretries = 0',
        "output": f'directory = "{output}"\nformats = ["npy"]',
    }
    given = usual | tables
    if search is not None:
        given["inversion"] = search
    return "".join(f"[{name}]\n{lines}\n" for name, lines in given.items() if lines is not None)


def shots_of(workspace):
    """Return the shots of a job that has modelled them."""
    over, geometry = replace(workspace, work=DATA, damaged=set()), workspace.geometry
    return [
        Shot(
            geometry.sources[number],
            geometry.receivers_of(number),
            workspace.wavelet,
            workspace.described.sampling,
            over.arrays(number, "data")[0],
        )
        for number in range(geometry.count)
    ]


def inverted_here(workspace, **options):
    """Invert the shots of a job by `wave.invert`."""
    start = AcousticModel(workspace.fields("model")["velocity"], workspace.described.grid)
    options = {"frequencies": (2.5, None), "iterations": 1, "bounds": BOUNDS} | options
    return invert(shots_of(workspace), start, dt=workspace.described.step, budget="8MB", progress=False, **options)
