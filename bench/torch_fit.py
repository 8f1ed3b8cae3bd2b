"""Training steps under a half and a third of the memory they need: `fit` and `offload` beside what PyTorch offers.

    python bench/torch_fit.py [transformer] [resnet] [vnet] [offload] [resnet128] [choices] [huge]

The first four are run by default; `resnet128` has a batch of 128, with which the device rather than the host binds it.

Every time is the median of steps run in this process, forward and backward without an optimizer, after some that are
not timed: WARM of them, fewer for `save_on_cpu`, `offload` and the best subset. Speeds are relative to plain steps.
Hosts and clocks change with the seconds, so steps of `fit` and of the best subset take turns with plain steps of a
copy. The parameters of that copy are part of the budgets and peaks that plans tell, not of those in rows. For `fit`
there are rounds, each with a plan of its own: the round of the median speed is told, the speeds of all, those of the
fastest step beside the fastest plain one, which others on the machine have disturbed least, and those of ten steps in
a row, for which nobody waits one by one, the median of five series. On a CPU the networks are tiny and the figures
mean nothing: it only shows that everything runs.
"""

import copy
import gc
import json
import statistics
import sys
import time
import traceback
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint
from torch_nets import resnet, transformer, vnet, wholes

from forebay import Budget
from forebay.errors import BudgetError
from forebay.torch import fit, offload, plan_of, release, unfit
from forebay.torch.blocks import named
from forebay.torch.choices import TREATMENTS
from forebay.torch.gauge import gauge_for
from forebay.torch.habit import LEARNED
from forebay.torch.iteration import SETTLED
from forebay.torch.mover import mover_for

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
HOST = "48GB" if GPU else "1GB"
TINY = {
    "transformer": lambda device: transformer(device, 32, 4, 2, 16),
    "resnet": lambda device: resnet(device, (1, 1, 2, 1), 4, 2, 32),
    "resnet128": lambda device: resnet(device, (1, 1, 2, 1), 4, 4, 32),
    "vnet": lambda device: vnet(device, (2, 4, 8), 1, 16),
}
LARGE = {"transformer": transformer, "resnet": resnet, "resnet128": partial(resnet, batch=128), "vnet": vnet}
NETS = LARGE if GPU else TINY
PARTS = (2, 3)
STEPS = 10
TURNS = 20
SERIES = 5
ROUNDS = 3
WARM = SETTLED + 2
"""Steps before any that is timed: a plan and its prediction stay by then, and clocks have come down as they do."""


def say(*what):
    print(*what, flush=True)


def synchronize():
    if GPU:
        torch.cuda.synchronize()


def cleared():
    gc.collect()
    synchronize()
    if GPU:
        torch.cuda.empty_cache()


def one(model, x, around=nullcontext):
    model.zero_grad(set_to_none=True)
    with around():
        loss = model(x).float().square().mean()
        loss.backward()


def timed(model, x, steps=STEPS, warm=WARM, around=nullcontext):
    """Give the median seconds of a step, and the peak bytes of the device."""
    for _ in range(warm):
        one(model, x, around)
    spent = []
    synchronize()
    if GPU:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        start = time.perf_counter()
        one(model, x, around)
        synchronize()
        spent.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if GPU else 0
    return statistics.median(spent), peak


class Turns(NamedTuple):
    """The seconds of plain steps and of others that took turns with them, and the peak bytes of the others."""

    plain: tuple[float, ...]
    own: tuple[float, ...]
    peak: int

    @property
    def medians(self):
        """The median seconds of the others, and of the plain ones."""
        return statistics.median(self.own), statistics.median(self.plain)

    @property
    def speed(self):
        """The speed of the others by the medians."""
        own, plain = self.medians
        return plain / own

    @property
    def fastest(self):
        """The speed of the others by the fastest of each."""
        return min(self.plain) / min(self.own)


class Beside:
    """A copy of a model that is never fitted: plain steps, to take turns with those of the model."""

    def __init__(self, model, x):
        model.zero_grad(set_to_none=True)
        before = torch.cuda.memory_allocated() if GPU else 0
        self.plain, self.x = copy.deepcopy(model), x
        self.nbytes = torch.cuda.memory_allocated() - before if GPU else 0

    def in_turns(self, model, turns=TURNS, steps=1):
        """Time plain steps and the model's one after the other, `steps` of them in a row; the first turn is not timed.

        Nobody waits for the device between steps in a row, as in training.
        """
        found = [(self._row(self.plain, steps)[0], *self._row(model, steps)) for _ in range(turns + 1)]
        plain, own, peaks = zip(*found, strict=True)
        return Turns(plain[1:], own[1:], max(peaks))

    def _row(self, model, steps):
        synchronize()
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        for _ in range(steps):
            one(model, self.x)
        synchronize()
        seconds = (time.perf_counter() - start) / steps
        model.zero_grad(set_to_none=True)  # the other has no room for these
        return seconds, torch.cuda.max_memory_allocated() - self.nbytes if GPU else 0


class Checkpointed:
    """Some blocks of a model under `torch.utils.checkpoint`."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __enter__(self):
        for block in self.blocks:
            block.forward = lambda *args, call=block.forward: checkpoint(call, *args, use_reentrant=False)

    def __exit__(self, *error):
        for block in self.blocks:
            del block.forward


def subsets(blocks, count):
    """Give the ways in which people pick `count` blocks: the first ones, or one every so many."""
    yield "first", blocks[:count]
    if 0 < count < len(blocks):
        yield "spread", [blocks[number * len(blocks) // count] for number in range(count)]


def best_subset(model, beside, blocks, budget):
    """Find the fewest blocks whose recomputation fits, by bisection, and time what fits; None where nothing does."""

    def peak(count, way):
        with Checkpointed(dict(subsets(blocks, count)).get(way, blocks[:count])):
            return beside.in_turns(model, 1).peak

    found = None
    for way in ("first", "spread"):
        low, high = 0, len(blocks)
        if peak(high, way) > budget:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if peak(middle, way) <= budget else (middle + 1, high)
        with Checkpointed(dict(subsets(blocks, low)).get(way, blocks[:low])):
            turns = beside.in_turns(model)
        if turns.peak <= budget and (found is None or turns.speed > found[0].speed):
            found = turns, f"{low} of {len(blocks)} ({way})"
    return found


def row(rows, net, what, budget, seconds, plain, peak, note="", **figures):
    known = {"net": net, "what": what, "budget": budget, "seconds": seconds, "plain": plain, "peak": peak, "note": note}
    rows.append(known | figures)
    save(rows)
    within = (
        "" if not budget or not GPU else f" of {budget / 2**30:.2f}" + ("" if peak <= budget else "  ABOVE THE BUDGET")
    )
    speed = f"{seconds * 1e3:8.1f} ms  speed {plain / seconds:.3f}"
    say(f"{net:12} {what:26} {speed}  peak {peak / 2**30:.2f}{within} GiB {note}")


def save(rows):
    """Write what there is so far: a run that is stopped leaves what it has measured."""
    out = Path(__file__).with_name("out")
    out.mkdir(exist_ok=True)
    about = {"device": torch.cuda.get_device_name() if GPU else "cpu", "torch": torch.__version__}
    (out / "torch_fit.json").write_text(json.dumps({**about, "rows": rows}, indent=1))


def compare(net, rows):
    model, x, names = NETS[net](DEVICE)
    blocks = [module for _, module in named(model, names)]
    plain, need = timed(model, x)
    with Checkpointed(blocks):
        every, least = timed(model, x)
    pinned, low = timed(model, x, 3, 1, lambda: save_on_cpu(pin_memory=GPU))
    cleared()  # the pinned memory that it leaves behind is torch's
    row(rows, net, "plain", 0, plain, plain, need, f"{len(blocks)} blocks")
    row(rows, net, "save_on_cpu", 0, pinned, plain, low)
    row(rows, net, "checkpoint on all", 0, every, plain, least)
    beside = Beside(model, x)
    for part in PARTS:
        budget = need // part if GPU else 10**9
        picked = best_subset(model, beside, blocks, budget) if GPU else None
        if picked:
            turns, which = picked
            row(rows, net, f"1/{part}: best subset", budget, *turns.medians, turns.peak, which)
        else:
            say(f"{net:12} 1/{part}: no subset under checkpoint fits")
        cleared()
        ways = {"fit": names} | ({"fit, whole blocks": wholes(model)} if net == "transformer" else {})
        for way, inside in ways.items():
            fitted(rows, net, f"1/{part}: {way}", model, beside, inside, budget)
    say()


def fitted(rows, net, what, model, beside, names, budget):
    rounds = []
    for _ in range(ROUNDS):
        fit(model, Budget(device=budget + beside.nbytes, host=HOST), blocks=names)
        try:
            for _ in range(WARM):
                one(model, beside.x)
            rounds.append((beside.in_turns(model), beside.in_turns(model, SERIES, STEPS), plan_of(model)))
        except (BudgetError, torch.OutOfMemoryError) as error:
            say(f"{net:12} {what}: {error}")
            return
        finally:
            unfit(model)
            model.zero_grad(set_to_none=True)
            cleared()
    told, _, plan = sorted(rounds, key=lambda one: one[0].speed)[ROUNDS // 2]
    seconds, plain = told.medians
    peak = max(turns.peak for one in rounds for turns in one[:2])
    speeds = {
        "speeds": [turns.speed for turns, _, _ in rounds],
        "fastest": [turns.fastest for turns, _, _ in rounds],
        "in_a_row": [turns.speed for _, turns, _ in rounds],
    }
    note = f"predicted {plan.seconds * 1e3:.1f} ms ({plan.seconds / seconds:.3f} of measured), "
    note += f"{(plan.foreseen.peak - beside.nbytes) / 2**30:.2f} GiB, "
    note += ", ".join(f"{kind.replace('_', ' ')} {_listed(found)}" for kind, found in speeds.items())
    row(rows, net, what, budget, seconds, plain, peak, note, predicted=plan.seconds, **speeds)
    say(plan.explain())


def _listed(speeds):
    return " ".join(f"{one:.3f}" for one in speeds)


def choices(rows):
    """Predicted and measured time of each choice made for all blocks of the transformer, with room for it."""
    model, x, _ = NETS["transformer"](DEVICE)
    plain, _ = timed(model, x, 10, 3)
    for choice in TREATMENTS:
        if "compress" in choice:
            continue
        fit(model, Budget(device="100GB" if GPU else "1GB", host=HOST), choice=choice)
        seconds, peak = timed(model, x)
        plan = plan_of(model)
        chain = plan.chain
        inside = sum(block.forward + block.backward for block in chain.blocks)
        parts = f"blocks {inside * 1e3:.1f} ms, outside {chain.outside * 1e3:.1f} ms"
        note = f"predicted {plan.seconds * 1e3:.1f} ms ({plan.seconds / seconds:.3f} of measured), {parts}"
        row(rows, "transformer", choice, 0, seconds, plain, peak, note, predicted=plan.seconds)
        unfit(model)
        cleared()


def only_offload(rows):
    """`offload` beside the bound that the link sets, beside `save_on_cpu`, and below the budget."""
    link = gauge_for(DEVICE).link(mover_for(DEVICE, 2**28))
    for net in ("transformer", "resnet"):
        model, x, _ = NETS[net](DEVICE)
        plain, need = timed(model, x, 10, 3)
        forward = forward_seconds(model, x)
        parameters = sum(one.nbytes for one in model.parameters())
        pinned, _ = timed(model, x, 3, 1, lambda: save_on_cpu(pin_memory=GPU))
        cleared()
        budgets = {
            "1/2 less parameters": max(need // 2 - 2 * parameters, need // 10),  # with gradients the step takes a half
            "1/2 for saved tensors": need // 2,  # as the budget is meant: parameters and gradients come on top
            "ample": 2 * need,
        }
        if not GPU:  # nothing counts what is needed
            budgets = dict(zip(budgets, (2000, 3000, 10**9), strict=True))
        for what, budget in budgets.items():
            saved = offload(Budget(device=budget, host=HOST), min_bytes="1MB" if GPU else 0)
            timed(model, x, 1, LEARNED, lambda saved=saved: saved)
            before, unseen = dict(saved.metrics.moved), saved.unseen
            rounds = [
                (timed(model, x, STEPS, 1)[0], *timed(model, x, STEPS, 0, lambda saved=saved: saved))
                for _ in range(ROUNDS)
            ]
            plain, seconds, peak = sorted(rounds, key=lambda one: one[1] / one[0])[ROUNDS // 2]
            steps = ROUNDS * STEPS
            down, up = ((saved.metrics.moved[lane] - before.get(lane, 0)) / steps for lane in ("down 1", "up 1"))
            bound = max(forward, down / link.down) + max(plain - forward, up / link.up)
            beside = f"{pinned / seconds:.1f}x save_on_cpu"
            note = f"moved {down / 1e9:.2f} GB, bound {bound * 1e3:.1f} ms ({seconds / bound:.2f}), {beside}"
            note += f", {saved.unseen - unseen} of {steps} steps without hooks"
            figures = {"bound": bound, "save_on_cpu": pinned, "need": need, "saved_budget": budget}
            row(rows, net, f"offload {what}", 0, seconds, plain, peak, note, **figures)
        del model, x
        release()
        cleared()


def forward_seconds(model, x):
    spent = []
    for _ in range(5):
        synchronize()
        start = time.perf_counter()
        loss = model(x)
        synchronize()
        spent.append(time.perf_counter() - start)
        del loss
    return statistics.median(spent)


def huge(rows):
    """Train with a step that needs 200 GB beside the largest batch that fits the card."""
    if not GPU:
        return
    model, x, _ = transformer(DEVICE, depth=24, batch=1)
    two, four = (timed(model, x.repeat(batch, 1, 1), 1, 1)[1] for batch in (2, 4))
    each = (four - two) / 2
    always = four - 4 * each
    card = torch.cuda.get_device_properties(0).total_memory
    fits, large = int((0.9 * card - always) / each), -int((always - 200e9) // each)
    cleared()
    plain, peak = timed(model, x.repeat(fits, 1, 1), 3, 2)
    row(rows, "huge", f"plain, batch {fits}", 0, plain, plain, peak, need=peak)
    cleared()
    fit(model, Budget(device=int(0.85 * card), host="64GB"))
    x = x.repeat(large, 1, 1)
    seconds, peak = timed(model, x, 3)
    say(f"samples a second: {large / seconds:.2f} beside {fits / plain:.2f}: {large / seconds / (fits / plain):.3f}")
    predicted, need = plan_of(model).seconds, int(always + large * each)
    note = f"a step needs {need / 1e9:.0f} GB, predicted {predicted * 1e3:.1f} ms"
    same = plain * large / fits
    row(
        rows, "huge", f"fit, batch {large}", int(0.85 * card), seconds, same, peak, note, predicted=predicted, need=need
    )
    say(plan_of(model).explain())


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    wanted = sys.argv[1:] or ["transformer", "resnet", "vnet", "offload"]
    rows = []
    for name in wanted:
        cleared()
        torch.manual_seed(0)
        try:
            {"offload": only_offload, "choices": choices, "huge": huge}.get(
                name, lambda rows, name=name: compare(name, rows)
            )(rows)
        except Exception as error:  # the others are still worth their time
            say(f"{name}: {error!r}")
            traceback.print_exc()


if __name__ == "__main__":
    main()
