"""What a reversal gives back: the plan, what was measured, and the two side by side."""

from dataclasses import dataclass, replace
from pathlib import Path

from forebay.drawing import Chart
from forebay.drawing.tables import table
from forebay.metrics import Metrics
from forebay.planner import Costs, Plan
from forebay.planner.drawn.reversal import compared, measured_chart, write_report
from forebay.planner.plan import MOST_SHOWN
from forebay.units import seconds_to_text, to_text


@dataclass(frozen=True)
class Result:
    """What a reversal gives back beside what its callbacks did."""

    plan: Plan
    """can be given again, to this loop's next reversal or to one like it"""
    metrics: Metrics
    note: str = ""
    """what was decided for the caller"""
    steps: int | None = None
    """that were reversed, where they were not those of the plan: a resumed reversal carries its plan out many times"""

    def __repr__(self) -> str:
        peaks = ", ".join(f"{tier} {to_text(peak)}" for tier, peak in self.metrics.peak.items())
        return f"Result({seconds_to_text(self.metrics.seconds)}; {peaks} of snapshots at most; {self.plan!r})"

    @property
    def costs(self) -> Costs:
        """The plan's costs, with what this reversal measured of the loop and of the codec."""
        phases, plan, known = self.metrics.phases, self.plan, dict(self.plan.costs.codecs)
        if plan.codec and self.metrics.ratios:
            known[plan.codec] = replace(known[plan.codec], ratio=self.metrics.mean_ratio)
        if self.steps == 0:
            return plan.costs
        pace, again = plan.steps / plan.schedule.steps, plan.schedule.forward_steps
        dearer = plan.prediction.forward / (plan.costs.forward * pace * again)  # than others are the steps run again
        forward = phases["forward"] / (pace * (self.metrics.advanced or again) * dearer) or plan.costs.forward
        backward = phases["backward"] / (self.steps or plan.steps)
        return replace(plan.costs, forward=max(forward, 1e-9), backward=backward, codecs=known, assumed=None)

    def plot(self) -> Chart:
        """Draw the steps, lanes and memory that were measured; notebooks show it, and its `write` makes a file."""
        return measured_chart(self)

    def report(self, path: Path | str, title: str = "A reversal inside a budget") -> None:
        """Write a page about it, which any browser opens from the disk.

        Parameters
        ----------
        path
            Of the page, such as ``"page.html"``.
        title
            Above it.
        """
        write_report(self, path, title)

    def _repr_html_(self) -> str:
        drawn = self.plot().markup if len(self.plan.schedule) <= MOST_SHOWN else ""
        return table(("", "measured", "predicted"), compared(self)) + drawn

    def explain(self) -> str:
        """Tell why this plan, and set what was predicted beside what was measured."""
        predicted, metrics = self.plan.prediction, self.metrics
        lines = [self.note] if self.note else []
        lines += [self.plan.explain(), "measured against predicted:"]
        times = 1.0 if self.steps is None else self.steps / self.plan.steps
        rows = {"whole": (metrics.seconds, times * predicted.seconds)}
        also = {"save": "compress", "restore": "decompress"}
        for phase in ("forward", "backward", "save", "restore", "stall"):
            measured = metrics.phases[phase] + metrics.phases[also.get(phase, "")]
            rows[phase] = (measured, times * getattr(predicted, phase))
        for name, (measured, foreseen) in rows.items():
            if max(measured, foreseen) > 1e-3 * metrics.seconds:
                lines.append(f"  {name:<9} {seconds_to_text(measured):>9}  predicted {seconds_to_text(foreseen)}")
        for tier, planned in self.plan.peak_bytes.items():
            lines.append(f"  {tier:<9} {to_text(metrics.peak[tier]):>9}  predicted {to_text(planned)}")
        if metrics.ratios and self.plan.codec:
            assumed = self.plan.costs.codecs[self.plan.codec].ratio
            lines.append(
                f"  ratio     {metrics.mean_ratio:9.3g}  predicted {assumed:.3g}; {metrics.ratios.worst:.3g} worst"
            )
        if metrics.samples:
            lines.append(
                f"  errors    {max(sample.relative for sample in metrics.samples):9.2g}  of the range at most, "
                f"in bricks of {len(metrics.samples)} sampled steps"
            )
        if metrics.generations and self.plan.keep == "states":
            again = f", up to {metrics.generations} of them in a row" if metrics.generations > 1 else ""
            lines.append(
                f"  the codec's bound holds at each save{again}; what was computed from there carries its error on"
            )
        if metrics.replanned:
            lines.append(
                f"  encodings were not as small as assumed, or smaller: the plan was left, and the loop went forward "
                f"{metrics.advanced / self.plan.schedule.steps:.2f} times over its steps; "
                "give result.costs to the next reversal"
            )
        elif metrics.spilled:
            lines.append(
                f"  encodings were larger than planned: {metrics.spilled} times one was moved down; "
                "give result.costs to the next reversal"
            )
        return "\n".join(lines)
