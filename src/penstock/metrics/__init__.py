"""Counters and timelines: what every runner fills and the report reads."""

from penstock.metrics.metrics import Metrics as Metrics
from penstock.metrics.metrics import Sample as Sample
from penstock.metrics.timeline import Span as Span
