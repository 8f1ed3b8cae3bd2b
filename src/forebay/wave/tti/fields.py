"""Names of the fields of TTI waves and of what a gradient adds up, which are those of VTI waves."""

from forebay.wave.vti.fields import FIELDS as FIELDS
from forebay.wave.vti.fields import SUMS as SUMS

MEMORIES = 4
"""Values that layers remember of a point and axis: slopes, or on the way back fluxes, of both stresses, then what is
done to both strains, or on the way back both stresses."""
