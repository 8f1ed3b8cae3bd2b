"""What the files of a workspace may tell, typed and bounded: a checksum that is right does not make a text ours."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST = 1e15
"""More than any job has of anything: seconds, steps or bytes times a thousand."""

Amount = Annotated[float, Field(ge=0, le=1e300, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=1e-15, le=MOST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=int(MOST))]
Several = Annotated[int, Field(ge=1, le=int(MOST))]
Whole = Annotated[int, Field(ge=-int(MOST), le=int(MOST))]

Lane = Annotated[str, Field(pattern="^(compute|codec|(up|down) [1-9])$")]


class ToldShot(BaseModel):
    """What a finished shot tells of itself."""

    model_config = ConfigDict(strict=True, extra="forbid")
    shot: Count
    seconds: Seconds
    data: Seconds
    reversal: Seconds
    every: Several
    steps: Several
    phases: dict[str, Seconds]
    peak: dict[str, Count]
    moved: dict[str, Count]
    ratio: Positive | None
    worst: Positive | None
    error: float | None
    note: str
    strength: Amount
    dropped: Count
    together: Several = 1
    """shots that advanced at a time"""


class ToldTimeline(BaseModel):
    """What a timeline tells: a shot, and what it did when."""

    model_config = ConfigDict(strict=True, extra="forbid")
    shot: Count
    spans: Annotated[list[tuple[Lane, str, Whole, Seconds, Seconds]], Field(min_length=1)]


class ToldPilot(BaseModel):
    """What a pilot tells: a codec for all shots, and what each bound did to the picture of a shot."""

    model_config = ConfigDict(strict=True, extra="forbid")
    codec: Annotated[str, Field(pattern=r"^bounded:[0-9.e-]{1,24}$")] | None
    tried: Annotated[list[tuple[Count, Positive, Amount, Positive]], Field(min_length=1)]


class ToldJob(BaseModel):
    """What a description tells, beside job and grid, which look after themselves."""

    model_config = ConfigDict(strict=True, extra="ignore")
    frozen: dict[str, Any]
    sampling: Positive
    lead: Count
    step: Positive
    every: Several
    device: Literal["cpu", "gpu"]
    notes: list[str]
    inputs: dict[str, str]
    contents: str
    marks: dict[str, list[int | str]]
