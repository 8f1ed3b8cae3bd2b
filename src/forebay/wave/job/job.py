"""Jobs: everything that work on many shots needs to know, read from a `job.toml` and checked first."""

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError, model_validator

from forebay.errors import WaveError
from forebay.files import text_of
from forebay.wave.job.inversion.tables import InversionTable, LeastSquaresTable
from forebay.wave.job.tables import (
    DataTable,
    GeometryTable,
    ImagingTable,
    MemoryTable,
    ModelTable,
    OutputTable,
    PhysicsTable,
    RunTable,
    Table,
    WaveletTable,
)

Command = Literal["rtm", "fwi", "lsrtm"]
COMMANDS: dict[str, Command] = {"inversion": "fwi", "lsrtm": "lsrtm"}
"""Tables that jobs of one command alone have, and that command."""
IDLE = {"imaging": ("image", "zero_phase", "mute", "include_outliers"), "memory": ("image_error", "checkpoint")}
"""Keys that only a migration asks for."""


class Job(Table):
    """What is to be done with many shots.

    Examples
    --------
    >>> job = parse('''
    ... model = {name = "salt", dims = 2, smooth = 100.0}
    ... geometry = {shots = 8}
    ... data = {dt = 0.004, length = 5.0}
    ... wavelet = {frequency = 3.5}
    ... ''')
    >>> job.geometry.shots, job.physics.order
    ((8,), 8)
    >>> parse('model = {name = "salt", smoth = 100.0}')
    Traceback (most recent call last):
        ...
    forebay.errors.WaveError: the job cannot be run:
      model.smoth: no such key; did you mean smooth?
      wavelet: expected a table of this name
    """

    model: ModelTable
    geometry: GeometryTable = GeometryTable()
    data: DataTable = DataTable()
    wavelet: WaveletTable
    physics: PhysicsTable = PhysicsTable()
    imaging: ImagingTable = ImagingTable()
    memory: MemoryTable = MemoryTable()
    run: RunTable = RunTable()
    output: OutputTable = OutputTable()
    inversion: InversionTable | None = None
    """of `forebay fwi` alone"""
    lsrtm: LeastSquaresTable | None = None
    """of `forebay lsrtm` alone"""

    @property
    def command(self) -> Command:
        """The command whose job it is."""
        return "fwi" if self.inversion is not None else "lsrtm" if self.lsrtm is not None else "rtm"

    @model_validator(mode="after")
    def _complete(self) -> "Job":
        if self.data.file is None:
            if self.data.dt is None or self.data.length is None:
                raise ValueError("data: expected dt and length, in seconds, of the shots to model, or a file")
            if self.geometry.shots is None and self.geometry.sources is None:
                raise ValueError("geometry: expected shots, a number, or the files sources and receivers")
        elif self.model.true is not None:
            raise ValueError("model.true: expected where shots are modelled only, and data.file has them")
        if self.physics.kind != "elastic" and self.imaging.image != "pp":
            raise ValueError("imaging.image: expected only beside physics.kind = 'elastic'")
        if self.command != "rtm":
            for table, keys in IDLE.items():
                own = getattr(self, table)
                if told := [key for key in keys if getattr(own, key) != type(own).model_fields[key].default]:
                    raise ValueError(f"{table}: expected no {', '.join(told)}, which only a migration asks for")
        if self.lsrtm is not None and self.physics.kind != "acoustic":
            raise ValueError("physics.kind: expected 'acoustic' in a job of forebay lsrtm, which scatters no others")
        return self


def read_job(path: Path, command: Command = "rtm") -> Job:
    """Read and check a job of a command; the files that it names are taken from the folder it lies in."""
    try:
        text = text_of(path)
    except OSError as error:
        raise WaveError(f"no job can be read from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WaveError(f"{path} is not TOML, which is text in UTF-8: {error}") from error
    except ValueError as error:
        raise WaveError(f"no job can be read from {path}: {error}") from error
    return parse(text, path.parent.resolve(), str(path), command)


def parse(text: str, folder: Path | None = None, name: str = "the job", command: Command = "rtm") -> Job:
    """Check the text of a job; every complaint names its key and says what was expected."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, and tables nested as deep
        raise WaveError(f"{name} is not TOML: {error!s:.300}") from error
    job = _checked(_of_command(tables, name, command), name)
    return _absolute(job, folder) if folder is not None else job


def _of_command(tables: dict[str, Any], name: str, command: Command) -> dict[str, Any]:
    """Return the tables of a job with that of its command; refuse that of another one."""
    for table, own in COMMANDS.items():
        if table in tables and own != command:
            raise WaveError(f"{name} has a table [{table}]: give it to forebay {own}, or leave the table out")
    output = tables.get("output", {})
    usual = {"directory": command} | output if isinstance(output, dict) else output
    return {table: {} for table, own in COMMANDS.items() if own == command} | tables | {"output": usual}


def _checked(tables: dict[str, Any], name: str) -> Job:
    try:
        return Job.model_validate(tables)
    except ValidationError as error:
        lines = [_complaint(entry) for entry in error.errors()]
        raise WaveError("\n  ".join([f"{name} cannot be run:", *lines])) from None


def _complaint(error: Any) -> str:
    """Say of one error which key it is and what was expected."""
    loc = [str(part) for part in error["loc"] if not str(part).startswith(("function-", "tuple[", "literal[", "[key]"))]
    key, kind, value = ".".join(part for part in loc if part not in ("int", "float")), error["type"], error["input"]
    if kind == "extra_forbidden":
        keys = list((Job if len(loc) == 1 else _table_of(Job.model_fields[loc[0]])).model_fields)
        elsewhere = [f"{name}.{loc[-1]}" for name, field in Job.model_fields.items() if _has(field, loc[-1])]
        close = elsewhere[:1] or get_close_matches(loc[-1], keys, 1)
        return f"{key}: no such key; " + (f"did you mean {close[0]}?" if close else f"expected {', '.join(keys)}")
    if kind == "missing":
        return f"{key}: expected a table of this name" if len(loc) == 1 else f"{key}: expected, and not there"
    if kind == "value_error":
        reason = str(error["ctx"]["error"])
        if not key:
            return reason  # names its table itself
        return f"{key}: expected {reason}" + ("" if isinstance(value, dict) else f", not {value!r}")
    if kind == "path_type":
        return f"{key}: expected the name of a {'folder' if loc[-1] == 'directory' else 'file'}, not {value!r}"
    if kind == "model_type":
        return f"{key}: expected a table, [{key}] with its keys below, not {value!r}"
    wanted = error["msg"].replace("Input should be ", "").split(", unable")[0].split(", got")[0]
    wanted = {"a valid integer": "a whole number", "a valid tuple": "a list", "a valid dictionary": "a table"}.get(
        wanted, wanted
    ).replace("a valid ", "a ")
    return f"{key}: expected {wanted}, not {value!r}"


def _has(field: Any, key: str) -> bool:
    """Tell whether a table of a job has a key."""
    return key in _table_of(field).model_fields


def _table_of(field: Any) -> Any:
    """Return the class of a table, which a job may leave out."""
    return next(iter(get_args(field.annotation)), field.annotation)


def _absolute(job: Job, folder: Path) -> Job:
    """Take relative paths from a folder."""
    tables = job.model_dump()
    for path in job.memory.weights:
        tables["memory"]["codec"] = job.memory.codec_with(str(folder / path.expanduser()))

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(entry) for name, entry in value.items()}
        return folder / value.expanduser() if isinstance(value, Path) else value

    return _checked(walk(tables), "the job")


def changed(
    job: Job, *, workers: int | None = None, scheduler: str | None = None, directory: Path | None = None
) -> Job:
    """Return the same job, run or written elsewhere."""
    tables = job.model_dump()
    if workers and scheduler is not None:
        raise WaveError("workers on this machine and the scheduler of a cluster were both asked for: give one of them")
    if workers is not None:
        tables["run"] |= {"workers": workers, "scheduler": None}
    if scheduler is not None:
        tables["run"] |= {"workers": 0, "scheduler": scheduler}
    if directory is not None:
        tables["output"]["directory"] = directory
    return _checked(tables, "the job")
