"""Files that commands write: what is wrong with a name is said before any work begins."""

from collections.abc import Sequence
from pathlib import Path

from forebay.errors import ForebayError

PICTURES = (".png", ".svg", ".pdf", ".jpg")


def check_output(option: str, path: Path | None, endings: Sequence[str] = ()) -> None:
    """Refuse a file whose folder is not there, or whose name has none of the endings."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise ForebayError(f"{option} {path}: there is no folder {path.absolute().parent}")
    if endings and path.suffix.lower() not in endings:
        raise ForebayError(f"{option} {path}: give a name that ends in {', '.join(endings)}")
