"""Ways to measure the peak memory of a call, one a file, each loaded where it is used."""

from forebay.footprint.measure.gauge import Gauge as Gauge
from forebay.footprint.measure.gauge import device_gauge as device_gauge
from forebay.footprint.measure.gauge import host_gauge as host_gauge
