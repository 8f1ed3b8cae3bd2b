"""What every benchmark stands on: arguments, environment, turns side by side, one JSON schema, one table."""

from harness.benchmark import SKIPPED as SKIPPED
from harness.benchmark import arg as arg
from harness.benchmark import benchmark as benchmark
from harness.benchmark import child as child
from harness.benchmark import no_gpu as no_gpu
from harness.report import Report as Report
from harness.report import digest as digest
from harness.report import summary as summary
from harness.timing import high_water as high_water
from harness.timing import median as median
from harness.timing import medians as medians
from harness.timing import reset_high_water as reset_high_water
from harness.timing import seconds as seconds
from harness.timing import steady as steady
from harness.timing import turns as turns
