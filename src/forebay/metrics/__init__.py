"""Counters and timelines: what every runner fills and the report reads."""

from forebay.metrics.metrics import Distortion as Distortion
from forebay.metrics.metrics import Metrics as Metrics
from forebay.metrics.timeline import Span as Span
from forebay.metrics.timeline import Timeline as Timeline

Sample = Distortion
"""Its earlier name."""
