"""Waves: modelling, migration and gradients of seismic shots, on the engine and inside its budgets."""

from forebay.errors import WaveError as WaveError
from forebay.wave.absorption import absorbing_points as absorbing_points
from forebay.wave.acoustic import Acoustic as Acoustic
from forebay.wave.advice import WaveWarning as WaveWarning
from forebay.wave.elastic import Elastic as Elastic
from forebay.wave.gradient import Gradient as Gradient
from forebay.wave.gradient import gradient as gradient
from forebay.wave.grid import Grid as Grid
from forebay.wave.imaging import imaging_interval as imaging_interval
from forebay.wave.imaging import laplacian_filter as laplacian_filter
from forebay.wave.imaging import normalise as normalise
from forebay.wave.loop import Adjoint as Adjoint
from forebay.wave.loop import Loop as Loop
from forebay.wave.loop import simulate as simulate
from forebay.wave.model import AcousticModel as AcousticModel
from forebay.wave.model import ElasticModel as ElasticModel
from forebay.wave.resample import Resampler as Resampler
from forebay.wave.rtm import Migration as Migration
from forebay.wave.rtm import migrate as migrate
from forebay.wave.shot import Shot as Shot
from forebay.wave.stability import largest_dt as largest_dt
from forebay.wave.wavelet import highest_frequency as highest_frequency
from forebay.wave.wavelet import lowest_frequency as lowest_frequency
from forebay.wave.wavelet import ricker as ricker
