"""Waiting for funds: who lacks only what may come back waits for it, first come, first served."""

from __future__ import annotations

from collections.abc import Callable

from graphflow.runtime.core import Core
from graphflow.runtime.ledger import ONE_RUN, Amount, Amounts, Meter, amounts_of
from graphflow.runtime.tables import Frame, Standing, Visit, Waiting

ACTIVE = (Standing.ASKED, Standing.UNFUNDED, Standing.QUEUED, Standing.RUNNING)


class Funding(Core):
    """Who waits for what others may give back."""

    __slots__ = ()

    def wait_for_funds(
        self, visit: Visit, attempt: Callable[[bool], bool], wanted: Amounts = ONE_RUN, key: str = ""
    ) -> bool:
        """Put a visit in line if it lacks nothing but what may come back; first come, first served."""
        waiting = Waiting(visit, attempt, wanted, key)
        if not self._could_be_funded(waiting):
            return False
        self.unfunded.append(waiting)
        return True

    def may_be_funded(self, visit: Visit, wanted: Amounts = ONE_RUN) -> bool:
        """Tell whether what is lacking now may come back from what is in flight."""
        return self._could_be_funded(Waiting(visit, bool, wanted, ""))

    def _could_be_funded(self, waiting: Waiting) -> bool:
        """Tell whether everything lacking is held by effects in flight, or by calls under way that are not above it."""
        visit = waiting.visit
        for meter in visit.token.frame.meter.chain():
            if meter.bounded:
                lacking = [
                    0 if free is None or not amount else amount - free
                    for amount, free in zip(waiting.wanted, map(meter.free, range(6)), strict=True)
                ]
                if any(lack > 0 for lack in lacking):
                    back = self._may_come_back(meter, visit)
                    if any(lack > max(more, 0) for lack, more in zip(lacking, back, strict=True)):
                        return False
        return True

    def _may_come_back(self, meter: Meter, asking: Visit) -> list[Amount]:
        """Return what of a meter's reserved amounts may be free again, without anybody who waits doing anything."""
        back: list[Amount] = [0, 0, 0, 0, 0, 0]
        for visit in self.visits.values():
            if visit.flying and visit.standing is Standing.RUNNING and meter in visit.token.frame.meter.chain():
                for reserved in visit.flying.values():
                    back = [a + b for a, b in zip(back, reserved, strict=True)]
            for state in visit.batch:
                frame = state.frame
                account = None if frame is None or state.done or frame.grant is None else frame.meter.parent
                if frame is None or account is None or meter not in account.chain():
                    continue
                if not _above(frame, asking) and self._is_active(frame):
                    rest = zip(amounts_of(frame.grant), frame.meter.spent, strict=True)
                    back = [a + granted - spent for a, (granted, spent) in zip(back, rest, strict=True)]
        return back

    def review_unfunded(self) -> None:
        """Try again for those who wait for funds, in line; refuse those whom nothing in flight can help."""
        blocked: list[Waiting] = []
        for waiting in tuple(self.unfunded):
            behind = any(_compete(other, waiting.visit, waiting.wanted) for other in blocked)
            self.unfunded.remove(waiting)
            if behind or not waiting.attempt(not self._could_be_funded(waiting)):
                self.unfunded.insert(len(blocked), waiting)
                blocked.append(waiting)

    def is_behind(self, visit: Visit, wanted: Amounts) -> bool:
        """Tell whether others are in line for what a visit wants: first come, first served."""
        return bool(self.unfunded) and any(wanted) and any(_compete(found, visit, wanted) for found in self.unfunded)

    def _is_active(self, frame: Frame) -> bool:
        owner = frame.owner
        if owner is None:
            return True
        depth = len(owner.path)
        call = (owner.turn, frame.call)
        return any(
            visit.standing in ACTIVE
            for path, visit in self.visits.items()
            if len(path) > depth and path[:depth] == owner.path and path[depth].call == call
        )


def _compete(waiting: Waiting, visit: Visit, wanted: Amounts) -> bool:
    """Tell whether somebody in line waits for the same dimension of the same meter."""
    if not any(a and b for a, b in zip(waiting.wanted, wanted, strict=True)):
        return False
    meters = set(waiting.visit.token.frame.meter.chain())
    return any(meter.bounded and meter in meters for meter in visit.token.frame.meter.chain())


def _above(frame: Frame, visit: Visit) -> bool:
    """Tell whether a visit stands inside a frame."""
    inside: Frame | None = visit.token.frame
    while inside is not None and inside is not frame:
        inside = inside.owner.token.frame if inside.owner is not None else None
    return inside is frame
