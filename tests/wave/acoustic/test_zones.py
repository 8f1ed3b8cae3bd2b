"""Zones have every computed point once, and zones and parts have every point of a layer once."""

from contextlib import nullcontext

import numpy as np
import pytest
from tests.wave.emulator import Emulator

from forebay.errors import WaveError
from forebay.wave import Grid
from forebay.wave.acoustic.layers import layers_of
from forebay.wave.acoustic.volume import VolumeKernels
from forebay.wave.acoustic.zones import Box, extent, parts_of, zones_of
from forebay.wave.kernels.rows import WORD, Rows

RADIUS = 4
GRIDS = {
    "open": Grid((20, 22, 30), 10.0, absorb=6),
    "free surface": Grid((20, 22, 30), 10.0, absorb=6, free_surface=True),
    "thin": Grid((3, 5, 2), 10.0, absorb=5),
    "no layers": Grid((9, 8, 7), 10.0, absorb=0),
}


def parted(grid):
    """Return the sides of layers, all computed points, and an array of them."""
    fields = grid.fields(RADIUS)
    rows = Rows.of(fields[-1], RADIUS, WORD, 8)
    sides = layers_of(grid, RADIUS, rows, 1e-3, 2000.0).sides
    end = -(-(rows.before + fields[-1] - RADIUS) // WORD)
    whole = Box((RADIUS, fields[0] - RADIUS), (RADIUS, fields[1] - RADIUS), ((rows.before + RADIUS) // WORD, end))
    return sides, whole, np.zeros((fields[0], fields[1], end), int)


def within(planes, rows, words):
    return tuple(slice(*span) for span in (planes, rows, words))


def reach(side):
    """Return the places along its axis that a layer changes in a step back."""
    first = (side.start - side.lead) // (WORD if side.axis == 2 else 1)
    return first, first + extent(side)


def changed(side, planes, whole):
    """Return the points that a layer changes in some planes."""
    spans = [planes, whole.rows, whole.words]
    spans[side.axis] = reach(side)
    return within(*spans)


@pytest.mark.parametrize("name", GRIDS)
def test_every_point_is_of_one_zone(name):
    sides, whole, points = parted(GRIDS[name])
    for zone in zones_of(sides, whole):
        points[within(zone.box.planes, zone.box.rows, zone.box.words)] += 1
    computed = within(whole.planes, whole.rows, whole.words)
    assert (points[computed] == 1).all() and points.sum() == points[computed].size


@pytest.mark.parametrize("name", GRIDS)
def test_every_point_of_a_layer_is_known_to_its_zone_or_is_of_a_part(name):
    sides, whole, points = parted(GRIDS[name])
    for number, side in enumerate(sides):
        known = np.zeros_like(points)
        for zone in zones_of(sides, whole):
            if number in (zone.side, zone.along):
                first, last = reach(side) if zone.along == number else zone.box.words
                assert zone.box.words[0] <= first < last <= zone.box.words[1]
                known[within(zone.box.planes, zone.box.rows, (first, last))] += 1
        for part in parts_of(sides, whole):
            if part.side == number:
                known[changed(side, part.planes, whole)] += 1
        all_of_it = changed(side, whole.planes, whole)
        assert (known[all_of_it] == 1).all() and known.sum() == known[all_of_it].size


@pytest.mark.parametrize("name", GRIDS)
def test_parts_share_no_point(name):
    sides, whole, points = parted(GRIDS[name])
    for part in parts_of(sides, whole):
        points[changed(sides[part.side], part.planes, whole)] += 1
    assert points.max() <= 1


@pytest.mark.parametrize(("absorb", "fits"), [(120, True), (128, False)])
def test_layers_along_rows_that_a_warp_cannot_hold_are_refused(absorb, fits):
    for width in range(20, 24):
        grid = Grid((12, 12, width), 10.0, absorb=absorb)
        kernels = VolumeKernels(grid, RADIUS, np.dtype(np.float32), device=Emulator())
        layers = layers_of(grid, RADIUS, kernels.rows, 1e-3, 2000.0)
        with nullcontext() if fits else pytest.raises(WaveError, match="give absorb=120 or less"):
            assert kernels.changes(layers) == 0
