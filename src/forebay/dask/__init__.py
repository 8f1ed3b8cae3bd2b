"""Dask: chunks from the workers' real limits, and functions over chunks that stay inside them."""

from forebay.dask.chunks import chunks_for as chunks_for
from forebay.dask.chunks import map_blocks as map_blocks
from forebay.dask.chunks import map_overlap as map_overlap
from forebay.dask.chunks import observed as observed
from forebay.dask.graphs.choose import GraphChunks as GraphChunks
from forebay.dask.graphs.choose import chunk as chunk
from forebay.dask.graphs.choose import chunks_for_graph as chunks_for_graph
from forebay.dask.graphs.forecast import GraphForecast as GraphForecast
from forebay.dask.graphs.forecast import forecast as forecast
from forebay.dask.limits import ENVIRONMENT as ENVIRONMENT
from forebay.dask.limits import WorkerLimits as WorkerLimits
from forebay.dask.limits import limits_of as limits_of
from forebay.dask.measuring import Observation as Observation

Limits = WorkerLimits
"""Its earlier name."""
