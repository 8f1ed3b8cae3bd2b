"""Footprints: the memory that an array function needs, known before it runs, and the chunks that fit a budget."""

from penstock.footprint.chunks import ChunkPlan as ChunkPlan
from penstock.footprint.chunks import choose_chunks as choose_chunks
from penstock.footprint.chunks import plan_chunks as plan_chunks
from penstock.footprint.errors import FootprintError as FootprintError
from penstock.footprint.errors import FootprintWarning as FootprintWarning
from penstock.footprint.estimate import Estimate as Estimate
from penstock.footprint.graph import Graph as Graph
from penstock.footprint.learn import learn as learn
from penstock.footprint.measurement import Sample as Sample
from penstock.footprint.model import Model as Model
from penstock.footprint.store import load as load
from penstock.footprint.watch import Peak as Peak
from penstock.footprint.watch import watch as watch
