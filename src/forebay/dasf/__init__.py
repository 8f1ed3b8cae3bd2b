"""DASF: a pipeline plugin that sets the chunks of datasets and measures tasks."""

from forebay.dasf.plugin import BlockPeaks as BlockPeaks
from forebay.dasf.plugin import FootprintPlugin as FootprintPlugin
from forebay.dasf.plugin import TaskPeak as TaskPeak

Task = TaskPeak
"""Its earlier name."""
