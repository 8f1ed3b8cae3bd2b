"""What a least-squares migration leaves behind: the image, its pictures, and a page that tells how it came about."""

from collections.abc import Sequence
from pathlib import Path

from forebay.drawing import Chart, Series, Subplot
from forebay.drawing.page import Drawn, Facts, Picture, Section, Text, write_page
from forebay.report.pictures import draw_panels
from forebay.units import seconds_to_text
from forebay.wave.files.formats import write_field
from forebay.wave.job.inversion.leastsquares import ExplainedSurvey
from forebay.wave.job.inversion.results import INKS, about_job, last_pass, measured
from forebay.wave.job.results import draw_model, panels_of, planned, shown_in_time

UNITS = {"velocity": "m/s", "squared slowness": "s²/m²"}


def write_change(survey: ExplainedSurvey, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the image in each format."""
    grid, written = survey.workspace.described.grid, []
    for name in [name for name in formats if name != "png"]:
        write_field(folder / f"image.{name}", survey.change, grid.spacing, grid.origin)
        written.append(folder / f"image.{name}")
    return written


def draw_pictures(survey: ExplainedSurvey, folder: Path) -> list[Picture]:
    """Draw the image and the model, and return both with captions."""
    grid, table = survey.workspace.described.grid, survey.workspace.described.job.lsrtm
    assert table is not None
    draw_panels(panels_of(survey.change, grid, signed=True, label=UNITS[table.parameter]), folder / "image.png")
    draw_model(survey.workspace, folder / "model.png")
    return [
        Picture(folder / "image.png", f"The change of {table.parameter} that explains the echoes."),
        Picture(folder / "model.png", "The velocity that was migrated through, receivers and sources."),
    ]


def residual_chart(survey: ExplainedSurvey) -> Chart:
    """Draw how much of the echoes was left after each iteration."""
    line = [(float(number), residual) for number, residual in enumerate(survey.residuals)]
    panel = Subplot([Series("left", INKS[0], [line])], "echoes left, of their norm", 1.05)
    return Chart([panel], "iteration", float(max(len(line) - 1, 1)))


def write_report(survey: ExplainedSurvey, path: Path, pictures: Sequence[Picture], title: str, lead: str) -> None:
    """Write the page: facts, pictures, what is left of the echoes, where time and memory went, and the last pass."""
    workspace = survey.workspace
    described, plan = workspace.described, workspace.plan()
    facts = [
        ("shots", str(workspace.geometry.count)),
        ("grid", " x ".join(map(str, described.grid.shape)) + f" at {described.grid.spacing[0]:.6g} m"),
        ("iterations", str(len(survey.residuals) - 1)),
        ("left of the echoes", f"{survey.residuals[-1]:.2%} of their norm"),
        ("this run", seconds_to_text(survey.seconds)),
        *(planned(plan, described.every) if plan is not None else []),
        *measured(workspace, survey.last),
    ]
    sections: list[Section] = [("", [Facts(facts)])]
    sections += [("Pictures", pictures)] if pictures else []
    sections.append(("Echoes", [Drawn(residual_chart(survey))]))
    sections += [("What was damaged", [Text("\n".join(survey.damage))])] if survey.damage else []
    sections += [*shown_in_time(workspace, 1.0), *last_pass(survey.last), *about_job(workspace)]
    write_page(path, title, lead, sections)
