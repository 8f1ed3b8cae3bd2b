"""The demo: the same shots migrated with everything kept, in a tenth of the memory, and there with a codec."""

from forebay.wave.demo.page import write_demo as write_demo
from forebay.wave.demo.salt import JOB as JOB
from forebay.wave.demo.salt import RecordedLine as RecordedLine
from forebay.wave.demo.salt import record as record
from forebay.wave.demo.salt import warm_up as warm_up
from forebay.wave.demo.ways import Strategy as Strategy
from forebay.wave.demo.ways import ways_of as ways_of
