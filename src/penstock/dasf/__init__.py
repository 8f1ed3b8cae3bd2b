"""DASF: a pipeline plugin that sets the chunks of datasets and measures tasks."""

from penstock.dasf.plugin import FootprintPlugin as FootprintPlugin
from penstock.dasf.plugin import Task as Task
