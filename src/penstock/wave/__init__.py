"""Waves: modelling, migration and gradients of seismic shots, on the engine and inside its budgets."""

from penstock.errors import WaveError as WaveError
from penstock.wave.absorption import absorbing_points as absorbing_points
from penstock.wave.acoustic import Acoustic as Acoustic
from penstock.wave.advice import WaveWarning as WaveWarning
from penstock.wave.elastic import Elastic as Elastic
from penstock.wave.gradient import Gradient as Gradient
from penstock.wave.gradient import gradient as gradient
from penstock.wave.grid import Grid as Grid
from penstock.wave.imaging import imaging_interval as imaging_interval
from penstock.wave.imaging import laplacian_filter as laplacian_filter
from penstock.wave.imaging import normalise as normalise
from penstock.wave.loop import Adjoint as Adjoint
from penstock.wave.loop import Loop as Loop
from penstock.wave.loop import simulate as simulate
from penstock.wave.model import AcousticModel as AcousticModel
from penstock.wave.model import ElasticModel as ElasticModel
from penstock.wave.resample import Resampler as Resampler
from penstock.wave.rtm import Migration as Migration
from penstock.wave.rtm import migrate as migrate
from penstock.wave.shot import Shot as Shot
from penstock.wave.stability import largest_dt as largest_dt
from penstock.wave.wavelet import highest_frequency as highest_frequency
from penstock.wave.wavelet import lowest_frequency as lowest_frequency
from penstock.wave.wavelet import ricker as ricker
