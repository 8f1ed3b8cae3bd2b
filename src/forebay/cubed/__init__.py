"""Cubed: its projected memory filled from a footprint, and chunks that its allowed memory can hold."""

from forebay.cubed.chunks import chunks_for as chunks_for
from forebay.cubed.chunks import extra_projected_mem as extra_projected_mem
from forebay.cubed.chunks import map_blocks as map_blocks
from forebay.cubed.chunks import map_overlap as map_overlap
