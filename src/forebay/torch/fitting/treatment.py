"""One block run as its treatment says: what it saves is kept, moved, encoded, or dropped to be computed again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks

from forebay.codec import Codec
from forebay.torch.compat import at_end_of_pass, graph_task
from forebay.torch.fitting.choices import Treatment
from forebay.torch.fitting.fitted_block import FittedBlock, Inputs
from forebay.torch.fitting.iteration import Iteration
from forebay.torch.fitting.record import BlockRecord, device_of
from forebay.torch.gauge import HostGauge
from forebay.torch.mover import bytes_by_storage, from_outside, storage_of
from forebay.torch.replay.arguments import tensors_in
from forebay.torch.replay.frame import Frame
from forebay.torch.saved_tensors import Entry, GraphToken, KeptTensor, StoredTensor, TensorStore


class BlockRunner:
    """Runs blocks with one store and one codec."""

    def __init__(self, store: TensorStore, gauge: HostGauge, codec: Codec | None) -> None:
        self._store, self._gauge, self._codec = store, gauge, codec

    def run(
        self,
        block: FittedBlock,
        inputs: Inputs,
        treatment: Treatment,
        expected: BlockRecord,
        sent: list["ref[Entry]"],
        record: BlockRecord | None,
        on_hidden: Callable[[bool], None],
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
        on_hidden
            Told when a second run has computed other values.
        """
        if treatment.what == "all" and not treatment.away and not treatment.encoded:
            return block.call(*inputs.args, **inputs.kwargs)
        if treatment.what == "all":
            output = self._saving(block, inputs, treatment, expected.outputs | expected.small, sent)
        else:
            output = self._dropping(block, inputs, treatment, expected, sent, record, on_hidden)
        # Not one by one while it runs: the device would wait for the host, at the beginning of a step.
        entries = [entry for reference in sent if (entry := reference()) is not None]
        sent[:] = map(ref, self._store.send(*entries))
        return output

    def _dropping(
        self,
        block: FittedBlock,
        inputs: Inputs,
        treatment: Treatment,
        expected: BlockRecord,
        sent: list["ref[Entry]"],
        record: BlockRecord | None,
        on_hidden: Callable[[bool], None],
    ) -> Any:
        """Run a block that will run again, but for what is kept of it."""

        def hold(tensor: torch.Tensor) -> KeptTensor | StoredTensor:
            return self._hold(tensor, treatment, sent)

        def hold_input(tensor: torch.Tensor) -> KeptTensor | StoredTensor:
            return KeptTensor(tensor) if from_outside(tensor) else hold(tensor)

        frame = Frame(
            block.call,
            block.module_state,
            device_of(inputs.tensors, block.module_state.parameters()),
            keep_input=hold_input if treatment.inputs_away else KeptTensor,
            wanted=expected.costly[treatment.what].numbers if treatment.what in expected.costly else frozenset(),
            keep_output=hold if treatment.away else KeptTensor,
            watch=None if record is None else Stopwatch(record, self._gauge),
            ends=expected.outputs,
            lasting=expected.rereads,
            on_hidden=on_hidden,
            compiled=expected.compiled,
        )
        return frame.run(inputs.args, inputs.kwargs)

    def _saving(
        self,
        block: FittedBlock,
        inputs: Inputs,
        treatment: Treatment,
        staying: frozenset[int],
        sent: list["ref[Entry]"],
    ) -> Any:
        """Run a block once, its saved tensors going through the store but for some; inputs are other blocks' too."""
        input_storages = bytes_by_storage(inputs.tensors)
        count = -1

        def pack(tensor: torch.Tensor) -> KeptTensor | StoredTensor:
            nonlocal count
            count += 1
            if count in staying:
                return KeptTensor(tensor)
            storage = storage_of(tensor)
            stays = storage is None or storage._cdata in input_storages
            return KeptTensor(tensor) if stays else self._hold(tensor, treatment, sent)

        shielded: Any = torch.compiler.disable(pack) if block.compiled else pack  # type: ignore[no-untyped-call]
        with saved_tensors_hooks(shielded, lambda saved: saved.tensor()):
            return block.call(*inputs.args, **inputs.kwargs)

    def _hold(self, tensor: torch.Tensor, treatment: Treatment, sent: list["ref[Entry]"]) -> KeptTensor | StoredTensor:
        held, entry = self._store.save(tensor)
        if entry is not None:
            if treatment.encoded and self._codec is not None:
                self._store.encode(entry, self._codec, tensor)
            if treatment.away or treatment.inputs_away:
                sent.append(ref(entry))
        return held

    def leave(self, iteration: Iteration, count: int) -> None:
        """Let the first blocks that move be gone from the device."""
        if iteration.plan is None:
            return
        while iteration.gone < count:
            for reference in reversed(
                iteration.sent.get(iteration.plan.moving[iteration.gone], [])
            ):  # who waits for the last waits once
                entry = reference()
                if entry is not None and entry.storage is not None and entry.away is not None:
                    self._store.leave(entry)
            iteration.gone += 1

    def fetch(self, iteration: Iteration, number: int) -> None:
        """Begin to bring back what a block sent away, what was saved last first."""
        entries = [reference() for reference in reversed(iteration.sent.get(number, []))]
        self._store.fetch(*[entry for entry in entries if entry is not None])

    def reach(self, iteration: Iteration, number: int, end: Callable[[], None]) -> None:
        """Come to a block in a backward pass, at the end of which `end` is called."""
        backward, plan, task = iteration.backward, iteration.plan, graph_task()
        if backward.task != task:
            backward.task, backward.below = task, len(iteration.expected)
            backward.count += 1
            at_end_of_pass(end)
        if backward.turned.get(number) == task:  # another of its outputs
            return
        backward.turned[number] = task
        iteration.reach(self._gauge.peak() if iteration.measuring else 0, iteration.records[number])
        place = None if plan is None else iteration.places[number]
        if plan is None or place is None:
            return
        if iteration.own and not iteration.expected[place].spans:  # a loss that needs more than the one measured
            iteration.profile.meet_loss()
        for reached in range(backward.below - 1, place - 1, -1):
            self.leave(iteration, plan.foreseen.leave[reached])
            for ahead in plan.foreseen.fetch[reached]:
                self.fetch(iteration, ahead)
        backward.below = min(backward.below, place)

    def end(self, iteration: Iteration) -> None:
        """Stop the clock of a backward pass, and compare the memory that the iteration took with its plan's."""
        iteration.reach(self._gauge.peak() if iteration.measuring else 0, None)
        if iteration.most and iteration.plan is not None:
            most = self._gauge.most()
            if most > iteration.most:  # else it was no more than what others had taken before
                if iteration.as_planned:
                    iteration.profile.weigh(iteration.plan, most)
                iteration.above = not iteration.own and most > iteration.plan.budget["device"]


def hook_outputs(iteration: Iteration, inputs: list[torch.Tensor], output: Any, reach: Callable[[], None]) -> None:
    """Have `reach` called when the backward of a block begins: the gradient of one of its outputs is there."""
    own, token = [id(tensor) for tensor in inputs], iteration.graph_token()

    def hook(gradient: torch.Tensor, token: GraphToken = token) -> None:
        reach()

    for tensor in tensors_in(output):
        # The caller's own tensors may outlive the iteration.
        if tensor.grad_fn is not None and id(tensor) not in own:
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]


class Stopwatch:
    """Times a second run."""

    def __init__(self, record: BlockRecord, gauge: HostGauge) -> None:
        self._record, self._gauge = record, gauge

    @contextmanager
    def __call__(self, frame: Frame) -> Iterator[None]:
        """Be around it."""
        record, before = self._record, len(self._record.waits)
        start = self._gauge.mark()
        yield
        record.replay_spans.append((start, self._gauge.mark()))
        record.replay_waits += record.waits[before:]
        del record.waits[before:]
