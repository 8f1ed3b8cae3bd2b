"""How well an array was kept, and how small: largest error, PSNR, SSIM and ratio."""

from forebay.codec.quality.comparison import Compared as Compared
from forebay.codec.quality.measures import Quality as Quality
from forebay.codec.quality.measures import begin_compare as begin_compare
from forebay.codec.quality.measures import compare as compare
from forebay.codec.quality.measures import max_error as max_error
from forebay.codec.quality.measures import measure as measure
from forebay.codec.quality.measures import psnr as psnr
from forebay.codec.quality.measures import ssim as ssim
