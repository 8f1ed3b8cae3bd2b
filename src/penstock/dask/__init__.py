"""Dask: chunks from the workers' real limits, and functions over blocks that stay inside them."""

from penstock.dask.blocks import chunks_for as chunks_for
from penstock.dask.blocks import map_blocks as map_blocks
from penstock.dask.blocks import map_overlap as map_overlap
from penstock.dask.blocks import observed as observed
from penstock.dask.limits import ENVIRONMENT as ENVIRONMENT
from penstock.dask.limits import Limits as Limits
from penstock.dask.limits import limits_of as limits_of
from penstock.dask.measuring import Observation as Observation
