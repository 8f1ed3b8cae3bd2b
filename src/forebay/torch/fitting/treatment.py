"""One block run as its treatment says: what it saves is kept, sent away, encoded, or dropped to be computed again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks

from forebay.codec import Codec
from forebay.torch.fitting.choices import Treatment
from forebay.torch.fitting.profile import Inputs, Iteration, Part
from forebay.torch.fitting.record import Record, device_of
from forebay.torch.gauge import HostGauge
from forebay.torch.mover import bytes_by_storage, from_outside, storage_of
from forebay.torch.replay.frame import Frame
from forebay.torch.saved_tensors import Entry, Held, Kept, Store


class Treating:
    """Runs blocks with one store and one codec."""

    def __init__(self, store: Store, gauge: HostGauge, codec: Codec | None) -> None:
        self._store, self._gauge, self._codec = store, gauge, codec

    def run(
        self,
        part: Part,
        inputs: Inputs,
        treatment: Treatment,
        expected: Record,
        sent: list["ref[Entry]"],
        record: Record | None,
    ) -> Any:
        """Run a block.

        Parameters
        ----------
        part, inputs
            The block, and what it is given.
        treatment
            What is done with what it saves.
        expected
            What was measured of it.
        sent
            Filled with what leaves it, which is sent away once it has run.
        record
            Filled with the time of a second run; None where nobody asks.
        """
        if treatment.what == "all" and not treatment.away and not treatment.encoded:
            return part.call(*inputs.args, **inputs.kwargs)
        if treatment.what == "all":
            output = self._saving(part, inputs, treatment, expected.outputs | expected.small, sent)
        else:
            output = self._dropping(part, inputs, treatment, expected, sent, record)
        # Not one by one while it runs: the device would wait for the host, at the beginning of a step.
        found = [entry for reference in sent if (entry := reference()) is not None]
        sent[:] = map(ref, self._store.send(*found))
        return output

    def _dropping(
        self,
        part: Part,
        inputs: Inputs,
        treatment: Treatment,
        expected: Record,
        sent: list["ref[Entry]"],
        record: Record | None,
    ) -> Any:
        """Run a block that will run again, but for what is kept of it."""

        def hold(tensor: torch.Tensor) -> Kept | Held:
            return self._hold(tensor, treatment, sent)

        def hold_input(tensor: torch.Tensor) -> Kept | Held:
            return Kept(tensor) if from_outside(tensor) else hold(tensor)

        frame = Frame(
            part.call,
            part.belongings,
            device_of(inputs.tensors, part.belongings.parameters()),
            keep_input=hold_input if treatment.inputs_away else Kept,
            wanted=expected.dear[treatment.what].numbers if treatment.what in expected.dear else frozenset(),
            keep_output=hold if treatment.away else Kept,
            watch=None if record is None else Stopwatch(record, self._gauge),
            ends=expected.outputs,
            lasting=expected.read_again,
            compiled=expected.compiled,
        )
        return frame.run(inputs.args, inputs.kwargs)

    def _saving(
        self,
        part: Part,
        inputs: Inputs,
        treatment: Treatment,
        staying: frozenset[int],
        sent: list["ref[Entry]"],
    ) -> Any:
        """Run a block once, its saved tensors going through the store but for some; inputs are other blocks' too."""
        given = bytes_by_storage(inputs.tensors)
        count = -1

        def pack(tensor: torch.Tensor) -> Kept | Held:
            nonlocal count
            count += 1
            if count in staying:
                return Kept(tensor)
            storage = storage_of(tensor)
            stays = storage is None or storage._cdata in given
            return Kept(tensor) if stays else self._hold(tensor, treatment, sent)

        shielded: Any = torch.compiler.disable(pack) if part.compiled else pack  # type: ignore[no-untyped-call]
        with saved_tensors_hooks(shielded, lambda saved: saved.tensor()):
            return part.call(*inputs.args, **inputs.kwargs)

    def _hold(self, tensor: torch.Tensor, treatment: Treatment, sent: list["ref[Entry]"]) -> Kept | Held:
        held, entry = self._store.save(tensor)
        if entry is not None:
            if treatment.encoded and self._codec is not None:
                self._store.encode(entry, self._codec, tensor)
            if treatment.away or treatment.inputs_away:
                sent.append(ref(entry))
        return held

    def leave(self, now: Iteration, count: int) -> None:
        """Let the first blocks that move be gone from the device."""
        if now.plan is None:
            return
        while now.gone < count:
            for reference in reversed(now.sent.get(now.plan.moving[now.gone], [])):  # who waits for the last waits once
                entry = reference()
                if entry is not None and entry.storage is not None and entry.away is not None:
                    self._store.leave(entry)
            now.gone += 1

    def fetch(self, now: Iteration, number: int) -> None:
        """Begin to bring back what a block sent away, what was saved last first."""
        found = [reference() for reference in reversed(now.sent.get(number, []))]
        self._store.fetch(*[entry for entry in found if entry is not None])


class Stopwatch:
    """Times a second run."""

    def __init__(self, record: Record, gauge: HostGauge) -> None:
        self._record, self._gauge = record, gauge

    @contextmanager
    def __call__(self, frame: Frame) -> Iterator[None]:
        """Be around it."""
        record, before = self._record, len(self._record.waits)
        start = self._gauge.mark()
        yield
        record.again.append((start, self._gauge.mark()))
        record.waits_again += record.waits[before:]
        del record.waits[before:]
