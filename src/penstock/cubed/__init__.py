"""Cubed: its projected memory filled from a footprint, and chunks that its allowed memory can hold."""

from penstock.cubed.blocks import chunks_for as chunks_for
from penstock.cubed.blocks import extra_projected_mem as extra_projected_mem
from penstock.cubed.blocks import map_blocks as map_blocks
from penstock.cubed.blocks import map_overlap as map_overlap
