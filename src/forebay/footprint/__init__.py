"""Footprints: the memory that an array function needs, known before it runs, and the chunks that fit a budget."""

from forebay.footprint.chunks.plan import ChunkPlan as ChunkPlan
from forebay.footprint.chunks.plan import choose_chunks as choose_chunks
from forebay.footprint.chunks.plan import plan_chunks as plan_chunks
from forebay.footprint.errors import CutError as CutError
from forebay.footprint.errors import FootprintError as FootprintError
from forebay.footprint.errors import FootprintWarning as FootprintWarning
from forebay.footprint.estimate import Estimate as Estimate
from forebay.footprint.graph import Graph as Graph
from forebay.footprint.learn import learn as learn
from forebay.footprint.load import load as load
from forebay.footprint.measure.sample import Sample as Sample
from forebay.footprint.model import Model as Model
from forebay.footprint.reach import Reach as Reach
from forebay.footprint.reach import find_reach as find_reach
from forebay.footprint.watch import Peak as Peak
from forebay.footprint.watch import watch as watch
