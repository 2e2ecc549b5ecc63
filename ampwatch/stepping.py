"""Where the step of an optimizer begins and ends, and where the loop's next step begins."""

from __future__ import annotations

from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.controls import EXPLAIN, Request, Value
from ampwatch.guard import Guard, guarded
from ampwatch.host import Host
from ampwatch.knobs import Knobs
from ampwatch.probe.anatomy import Dissection
from ampwatch.probe.autocast import AutocastWatch
from ampwatch.probe.ledger import Ledger
from ampwatch.probe.movement import Movement
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.optimizers import Optimizers
from ampwatch.record import Notice
from ampwatch.record.facts import fact
from ampwatch.recorder import Recorder
from ampwatch.trouble import Trouble


class Stepping:
    """Between the calls of a loop and its records.

    Only :meth:`begin` and :meth:`boundary` may raise, and only
    :class:`ampwatch.host.StopTraining`.
    """

    def __init__(
        self,
        guard: Guard,
        host: Host,
        optimizers: Optimizers,
        ledger: Ledger,
        recorder: Recorder,
        autocast: AutocastWatch,
        knobs: Knobs,
        trouble: Trouble,
    ) -> None:
        self.guard = guard
        self.optimizers = optimizers
        self.ledger = ledger
        self.facts = recorder.facts
        self._host = host
        self._recorder = recorder
        self._reader = recorder.reader
        self._autocast = autocast
        self._knobs = knobs
        self._trouble = trouble
        self._due = False
        self._updates = False
        self.dissection: Dissection | None = None
        """While a step is being taken apart."""

    @guarded()
    def state(self, optimizer: Optimizer) -> OptimizerState | None:
        """What is going on with an optimizer; None if it is not ours."""
        strangers = len(self.optimizers.others)
        state = self.optimizers.state(optimizer)
        if len(self.optimizers.others) > strangers:
            self.ledger.losses.clear()  # they may be those of a network that is not ours
        return state

    def begin(self, optimizer: Optimizer) -> OptimizerState | None:
        """A step begins; the boundary of the one before is here when no update() was one."""
        state = self.optimizers.states.get(id(optimizer))
        if state is None or state.ref() is not optimizer:
            state = self.state(optimizer)
        if self._due and state is not None and self._reader.has_stepped(optimizer):
            self.boundary()
        return state

    def read(self, state: OptimizerState, optimizer: Optimizer, scaler: GradScaler | None) -> None:
        """Take the norms of its gradients, which carry the scale of ``scaler`` if there is one."""
        state.read_at = self.ledger.passes
        asked = self._reader.inject
        self._reader.read(state, optimizer, scaler)
        injected = asked and not self._reader.inject
        if injected:
            self.facts.add("inf-injected")
        at_once = self._trouble.at_once = state.values is not None
        if state.counts is not None or state.suspect is not None:
            self._trouble.after_read(state)
        if state.figures is not None and state.reading and not (at_once and state.counts):
            state.movement = Movement(state.parameters, state.reading)
        if self.dissection is not None and state.reading is not None:
            self.dissection.read(state, injected)

    def end(
        self,
        state: OptimizerState,
        optimizer: Optimizer,
        scaler: GradScaler | None,
        found: list[Tensor],
    ) -> None:
        """The step is over, taken or skipped.

        Args:
            scaler: the loop's own.
            found: its found_inf, where it has looked.
        """
        if state.reading is None:
            state.forget()  # a CUDA graph is being captured, and nothing could be read
            return
        self._due = True
        state.stepped_at = self.ledger.passes
        if self.ledger.open or self.ledger.mixed:
            self.ledger.open.pop(id(optimizer), None)
            self.ledger.mixed.discard(id(optimizer))
        if state.figures is not None:
            self._trouble.at_detail(state)
        if state.reading is not None and state.reading.half and not self._scaled(scaler):
            self.facts.add("fp16-gradients")
        if self._autocast.old_name is not None:
            self.facts.add(fact("deprecated-api", name=self._autocast.old_name))
            self._autocast.old_name = None
        losses = self.ledger.losses.taken()
        dtype = self._autocast.dtype()
        if state.values is None and found and not state.ran:
            # The scaler has skipped this step: so it has waited for the device itself.
            self._trouble.skipped_late(state, losses)
        else:
            self._trouble.before_record(state)
        if self.dissection is not None:
            mode = self._knobs.mode_of(scaler)
            self.dissection.end(state, optimizer, scaler, found, self._reader.step, dtype, mode)
        self._recorder.emit(state, optimizer, found, losses, dtype, scaler, self._knobs)

    def _scaled(self, scaler: GradScaler | None) -> bool:
        """Whether this loop has a scaler that is on, and has used it."""
        return scaler is not None and scaler.is_enabled() and self.ledger.scaled_at >= 0

    def refused(self, state: OptimizerState, optimizer: Optimizer, scaler: GradScaler) -> None:
        """The scaler has raised an error in place of a step."""
        if state.reading is None:
            return
        self._due = True
        losses = self.ledger.losses.taken()
        dtype = self._autocast.dtype()
        if self.dissection is not None:
            mode = self._knobs.mode_of(scaler)
            self.dissection.end(state, optimizer, scaler, [], self._reader.step, dtype, mode)
        self._recorder.emit_refused(state, optimizer, losses, dtype, scaler, self._knobs)

    def updated(self) -> None:
        """``update()`` has been called: in this loop that is where a step ends."""
        self._updates = True
        self.boundary()

    def stepped(self) -> None:
        """An optimizer has stepped without a scaler."""
        if not self._updates and self._reader.complete():
            self.boundary()

    def boundary(self) -> None:
        """Between two steps: late records go out, knobs are turned, the loop waits or stops."""
        if not self._due or self.guard.closed:
            return
        self._due = False
        self.ledger.losses.next_step()
        self._autocast.next_step()
        if self._reader.pending:
            self._flush(False)
        if self.dissection is not None and self.dissection.over:
            self._told(self.dissection)
        self._host.boundary(self.turn, self._settle)

    @guarded()
    def _flush(self, wait: bool) -> None:
        self._reader.flush(wait=wait)

    def _settle(self) -> None:
        """A pause begins: whoever looks on is to see the last step too."""
        if self._reader.pending:
            self._flush(True)

    @guarded()
    def _told(self, dissection: Dissection) -> None:
        """A step that was taken apart is over."""
        self._flush(True)  # its own record first
        record = dissection.finished()
        self.dissection = None
        dissection.close()
        if record is not None:
            self._host.put(record)

    def explain(self, tensor: Value) -> Notice | None:
        """Take the next step apart, and follow this parameter if it has a name."""
        name = tensor if isinstance(tensor, str) else None
        if self.dissection is not None and not self.dissection.closed:
            self.dissection.tensor = name
            return None
        parameters = set(map(id, self.optimizers.parameters()))
        dissection = self.dissection = Dissection(
            self._recorder.names, parameters, name, self._not_told
        )
        dissection.open()
        self._reader.spacing.ask()  # where its gradients lie belongs to it
        if dissection.reason is None:
            return None
        return Notice(f"operations cannot be told: {dissection.reason}", EXPLAIN.name)

    def _not_told(self, why: str) -> None:
        self._host.put(Notice(why, EXPLAIN.name, refused=True))

    def close(self) -> None:
        """Watching ends; a step that has been taken apart is still told."""
        if self.dissection is not None:
            self._told(self.dissection)

    def turn(self, request: Request) -> Notice | None:
        """Turn a knob; the answer to whoever asked."""
        try:
            return self._knobs.turn(request)
        except Exception as error:
            return Notice(f"that did not work: {error}", request.knob, None, refused=True)
