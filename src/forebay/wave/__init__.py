"""Waves: modelling, migration and gradients of seismic shots, on the engine and inside its budgets."""

from forebay.errors import WaveError as WaveError
from forebay.wave.acoustic.propagator import Acoustic as Acoustic
from forebay.wave.advice import WaveWarning as WaveWarning
from forebay.wave.earth.grid import Grid as Grid
from forebay.wave.earth.model import AcousticModel as AcousticModel
from forebay.wave.earth.model import ElasticModel as ElasticModel
from forebay.wave.earth.stability import largest_dt as largest_dt
from forebay.wave.elastic.physics import Elastic as Elastic
from forebay.wave.gradient import Gradient as Gradient
from forebay.wave.gradient import gradient as gradient
from forebay.wave.imaging import imaging_interval as imaging_interval
from forebay.wave.imaging import laplacian_filter as laplacian_filter
from forebay.wave.imaging import normalise as normalise
from forebay.wave.loop import Adjoint as Adjoint
from forebay.wave.loop import Loop as Loop
from forebay.wave.migrate import Migration as Migration
from forebay.wave.migrate import migrate as migrate
from forebay.wave.pilot import find_bound as find_bound
from forebay.wave.pilot import picture_error as picture_error
from forebay.wave.simulate import simulate as simulate
from forebay.wave.survey.resample import Resampler as Resampler
from forebay.wave.survey.shot import Shot as Shot
from forebay.wave.survey.wavelet import highest_frequency as highest_frequency
from forebay.wave.survey.wavelet import ricker as ricker
