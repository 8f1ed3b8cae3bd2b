"""Dask: chunks from the workers' real limits, and functions over blocks that stay inside them."""

from forebay.dask.blocks import chunks_for as chunks_for
from forebay.dask.blocks import map_blocks as map_blocks
from forebay.dask.blocks import map_overlap as map_overlap
from forebay.dask.blocks import observed as observed
from forebay.dask.limits import ENVIRONMENT as ENVIRONMENT
from forebay.dask.limits import Limits as Limits
from forebay.dask.limits import limits_of as limits_of
from forebay.dask.measuring import Observation as Observation
