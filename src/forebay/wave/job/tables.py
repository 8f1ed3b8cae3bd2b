"""The tables of a job: their keys, what each may be, and what is taken where nothing is said."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from forebay.codec.auto import choices
from forebay.codec.bounded import Bounded
from forebay.errors import ForebayError
from forebay.schedule import named
from forebay.units import Budget, to_bytes
from forebay.wave.earth.builtin import BUILTIN
from forebay.wave.files.segy.keys import Coordinate, SegyKeys, ShotKeys
from forebay.wave.pilot import read_share

HIGHEST_ORDER = 64
"""of accuracy in space: stencils grow with it, and beyond this nothing else does"""


def _even(order: int) -> int:
    if order < 2 or order % 2:
        raise ValueError("an even number of at least 2")
    if order > HIGHEST_ORDER:
        raise ValueError(f"at most {HIGHEST_ORDER}")
    return order


def _amount(value: Any) -> Any:
    try:
        return None if value is None else to_bytes(value)
    except ForebayError:
        raise ValueError("bytes, as in '8GB' or a number") from None


def _codec(value: str | None) -> str | None:
    try:
        choices(value)
    except ForebayError as error:
        raise ValueError(f"a codec such as 'bounded:1e-4' ({error})") from None
    return value


def _share(value: Any) -> Any:
    try:
        return None if value is None else read_share(value)
    except ForebayError:
        raise ValueError("a share between 1e-7 and 1, such as 0.01 or '1%'") from None


def _schedule(value: str) -> str:
    families = ("auto", "storeall", "revolve", "zcut", "uniform", "twolevel")
    if value.strip().lower() in families:
        return value
    try:
        named(value, 10**6)
    except ForebayError as error:
        raise ValueError(f"one of {', '.join(families)}, or one with its number: 'revolve:20' ({error})") from None
    return value


def _address(value: str | None) -> str | None:
    if value is not None and ":" not in value:
        raise ValueError("an address with its port such as 'tcp://10.0.0.1:8786'")
    return value


def listed(value: Any) -> Any:
    """Return a list of what may be one value."""
    return list(value) if isinstance(value, list | tuple) else [value]


Positive = Annotated[float, Field(gt=0, lt=1e12)]
Depth = Annotated[float, Field(ge=0, lt=1e12)]
Bytes = Annotated[int | None, BeforeValidator(_amount)]
Count = Annotated[int, Field(ge=1, le=10**6)]
Points = Annotated[int, Field(ge=2, le=10**6)]


class Table(BaseModel):
    """A table of a job."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def _set(self, *keys: str) -> list[str]:
        """Return those of some keys that were set."""
        return [key for key in keys if getattr(self, key) is not None]


class ModelTable(Table, SegyKeys):
    """What the waves travel through: a built-in model, small and of seed 0 unless told, or a file."""

    name: Literal["layers", "marmousi", "marmousi3d", "salt", "large"] | None = None
    size: Literal["small", "full"] | None = None
    dims: Literal[2, 3] | None = None
    shape: tuple[Points, ...] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    velocity: Path | None = None
    """.npy, .zarr, .segy, .sgy or .su; depth first, metres per second"""
    true: Path | None = None
    """where shots are modelled: another file, which `velocity` is a guess of"""
    units: Literal["metres", "feet"] | None = None
    """of lengths and velocities in SEG-Y; a file in feet is not read without it"""
    spacing: Annotated[tuple[Positive, ...], BeforeValidator(listed)] | None = None
    """metres along each axis, where the file does not tell"""
    origin: tuple[Coordinate, ...] | None = None
    smooth: Depth = 0.0
    """metres over which the slowness is averaged before anything migrates through it"""

    @model_validator(mode="after")
    def _one(self) -> "ModelTable":
        if (self.name is None) == (self.velocity is None):
            raise ValueError(f"either name, one of {', '.join(BUILTIN)}, or velocity, a file")
        idle = ("spacing", "origin", "true") if self.velocity is None else ("dims", "shape", "size", "seed")
        if keys := self._set(*idle):
            raise ValueError(f"no {', '.join(keys)} beside {'name' if self.velocity is None else 'velocity'}")
        self.check_segy(self.velocity)
        return self


class GeometryTable(Table):
    """Where the shots are, unless their file tells."""

    shots: Annotated[tuple[Count, ...], BeforeValidator(listed)] | None = None
    """how many, spread evenly: a number, or in three dimensions two, along y and along x"""
    source_depth: Depth | None = None
    receiver_depth: Depth | None = None
    receiver_spacing: Positive | None = None
    """metres, beside shots only; unless told, 20, 20 and 25"""
    sources: Path | None = None
    """.npy, a position in metres a row, depth first"""
    receivers: Path | None = None
    """.npy, the same for all shots, or with one more axis for each"""
    max_offset: Positive | None = None
    """metres; receivers farther from their source are left out"""

    @model_validator(mode="after")
    def _both(self) -> "GeometryTable":
        if (self.sources is None) != (self.receivers is None):
            raise ValueError("sources and receivers together, or neither")
        if self.shots is not None and self.sources is not None:
            raise ValueError("either shots, a number, or the files sources and receivers")
        if self.shots is None and (keys := self._set("source_depth", "receiver_depth", "receiver_spacing")):
            raise ValueError(f"no {', '.join(keys)} without shots: files tell where sources and receivers are")
        return self


class DataTable(Table, ShotKeys):
    """What was recorded; without a file, shots are modelled."""

    file: Path | None = None
    """.segy, .sgy, .su, .zarr or .npy"""
    dt: Positive | None = None
    """seconds between samples"""
    length: Positive | None = None
    """seconds that are recorded, of modelled shots"""
    mute_velocity: Positive | None = None
    """metres per second: what arrives before a direct wave of this speed has passed is muted"""
    mute_delay: Depth | None = None
    """seconds after that wave's time zero; unless told, as long as the wavelet lasts"""

    @model_validator(mode="after")
    def _one(self) -> "DataTable":
        if self.file is not None and self.length is not None:
            raise ValueError("no length beside file, whose shots are as long as they are")
        if self.mute_delay is not None and self.mute_velocity is None:
            raise ValueError("mute_velocity beside mute_delay")
        self.check_segy(self.file)
        return self


class WaveletTable(Table):
    """What the sources send."""

    frequency: Positive | None = None
    """of a Ricker wavelet, in Hz"""
    delay: Depth | None = None
    """seconds from the time zero of the data to the middle of that wavelet, unless told 1.5 periods; with 0 it has zero
    phase"""
    file: Path | None = None
    """.npy, one value per sample, or a row of them for each shot"""
    dt: Positive | None = None
    """seconds between the samples of the file; unless told, those of the data"""
    time_zero: Annotated[tuple[Depth, ...], BeforeValidator(listed), Field(min_length=1)] | None = None
    """seconds from the first sample of the file to the time zero of the data: a number, or one for each shot"""

    @model_validator(mode="after")
    def _one(self) -> "WaveletTable":
        if (self.frequency is None) == (self.file is None):
            raise ValueError("either frequency, in Hz, or file")
        if keys := self._set(*(("dt", "time_zero") if self.file is None else ("delay",))):
            raise ValueError(f"no {', '.join(keys)} beside {'frequency' if self.file is None else 'file'}")
        return self


KEYS = {
    "density": ("density",),
    "vti": ("epsilon", "delta"),
    "tti": ("epsilon", "delta", "tilt", "azimuth"),
    "visco": ("q", "q_frequency"),
    "elastic": ("vs", "density", "sends", "hears"),
}
"""What kinds of waves may be told beside what all may be."""


class MediumTable(Table):
    """What a medium is beside its velocity."""

    vs: Path | None = None
    """elastic: metres per second; unless told, the velocity over the square root of 3"""
    density: Path | None = None
    """elastic, density: kilograms per cubic metre; unless told, Gardner's 310 times the fourth root of the velocity"""
    epsilon: Path | None = None
    """vti, tti: of Thomsen's parameters, as `delta`, nowhere below it"""
    delta: Path | None = None
    tilt: Path | None = None
    """tti: of the symmetry axis from depth, in radians, as `azimuth`, which belongs to three dimensions"""
    azimuth: Path | None = None
    q: Path | None = None
    """visco: of quality factors, infinite where waves lose nothing"""
    q_frequency: Positive | None = None
    """visco: the frequency in Hz at which they hold, and the velocity does"""


class PhysicsTable(MediumTable):
    """How waves are computed."""

    kind: Literal["acoustic", "density", "vti", "tti", "visco", "elastic"] = "acoustic"
    order: Annotated[int, AfterValidator(_even)] = 8
    absorb: Annotated[int, Field(ge=0, le=10**4)] | None = None
    """points of each absorbing layer; unless told 20"""
    free_surface: bool = False
    sends: Literal["explosion", "force z", "force y", "force x"] = "explosion"
    hears: Literal["pressure", "velocity z", "velocity y", "velocity x"] = "pressure"
    dt: Positive | None = None
    """seconds of a step; unless told, a whole part of the data's that is stable and fine enough"""

    @model_validator(mode="after")
    def _check_keys(self) -> "PhysicsTable":
        usual = {"sends": "explosion", "hears": "pressure"}
        told = self._set("vs", "density", "epsilon", "delta", "tilt", "azimuth", "q", "q_frequency")
        told += [key for key in usual if getattr(self, key) != usual[key]]
        for key in told:
            known = [kind for kind, keys in KEYS.items() if key in keys]
            if self.kind not in known:
                raise ValueError(f"kind = {' or '.join(map(repr, known))} beside {key}")
        needed = {"vti": ("epsilon", "delta"), "tti": ("epsilon", "delta", "tilt")}.get(self.kind, ())
        if any(getattr(self, key) is None for key in needed):
            raise ValueError(f"the files {', '.join(needed[:-1])} and {needed[-1]} beside kind = {self.kind!r}")
        if self.kind == "visco" and (self.q is None or self.q_frequency is None):
            raise ValueError("the file q, and q_frequency in Hz, beside kind = 'visco'")
        return self


class ImagingTable(Table):
    """How the image is made."""

    every: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """steps between two contributions; unless told, what the wavelet's band allows"""
    image: Literal["pp", "velocity"] = "pp"
    """of elastic waves: pressure waves alone, or the motion of particles"""
    zero_phase: bool = False
    """whether the image of a step in velocity has its peak there, positive where the velocity rises with depth"""
    aperture: Depth | None = None
    """metres around sources and receivers in which a shot migrates, its image fading out in the outer half of them;
    unless told, the whole model"""
    mute: Depth = 0.0
    """metres from the top in which the final image is faded out"""
    include_outliers: bool = False
    """whether shots are summed that are far stronger than the median of all, see `forebay.wave.job.stack.outliers`"""


class MemoryTable(Table):
    """What a shot may keep, and how."""

    device: Bytes = None
    host: Bytes = None
    disk: Bytes = None
    directory: Path | None = None
    """of the disk tier; unless told, inside the job's own"""
    codec: Annotated[str | None, AfterValidator(_codec)] = None
    image_error: Annotated[float | None, BeforeValidator(_share)] = None
    """how far the picture of a shot may be from that of an exact history: a pilot finds the codec's bound"""
    schedule: Annotated[str, AfterValidator(_schedule)] = "auto"
    checkpoint: bool = False
    """whether the progress of a shot is kept on the disk, so that one that is killed goes on where it was"""

    @model_validator(mode="after")
    def _check_budget(self) -> "MemoryTable":
        if self.checkpoint and self.budget is None:
            raise ValueError("host or device beside checkpoint: a shot that goes on must have the bytes that it had")
        return self

    @model_validator(mode="after")
    def _one(self) -> "MemoryTable":
        if self.image_error is not None and self.codec is not None:
            raise ValueError("either image_error, from which a codec and its bound follow, or codec")
        if self.image_error is not None and self.schedule.strip().lower() not in ("auto", "storeall"):
            raise ValueError("schedule = 'auto' or 'storeall' beside image_error: others keep no records")
        return self

    @property
    def weights(self) -> list[Path]:
        """The files of the codec's weights."""
        asked = choices(self.codec)[0]
        weighted = [codec.weight for codec in asked if isinstance(codec, Bounded) and codec.weight is not None]
        return [Path(weight.name) for weight in weighted]

    def codec_with(self, weight: str) -> str:
        """Return the codec's name with something else in place of the file of its weights."""
        return re.sub(r"(weight\s*=\s*)[^,]*", lambda found: found[1] + weight, str(self.codec))

    @property
    def budget(self) -> Budget | None:
        """The budget; None where nothing was said."""
        tiers = {"device": self.device, "host": self.host, "disk": self.disk}
        return Budget(**tiers) if any(amount is not None for amount in tiers.values()) else None


class RunTable(Table):
    """Where the shots are computed: changes nothing in the image."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    workers: Annotated[int, Field(ge=0, le=10**4)] = 0
    """processes of a cluster on this machine; 0 for none"""
    scheduler: Annotated[str | None, AfterValidator(_address)] = None
    """address of a cluster that is there, such as tcp://10.0.0.1:8786"""
    retries: Annotated[int, Field(ge=0, le=1000)] = 1
    """how often a shot that fails is tried again"""

    @model_validator(mode="after")
    def _one(self) -> "RunTable":
        if self.workers and self.scheduler:
            raise ValueError("either workers, of a new cluster, or scheduler, of one that is there")
        return self


class OutputTable(Table):
    """What is written, and where."""

    directory: Path = Path("rtm")
    """unless told, that is named as the command"""
    formats: Annotated[tuple[Literal["npy", "zarr", "segy", "png"], ...], BeforeValidator(listed)] = ("npy", "png")
