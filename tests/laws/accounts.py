"""What the laws say of accounts: an audit of every meter of a run, made from the fold's tables and from the events."""

from collections.abc import Iterable, Iterator
from decimal import Decimal

from graphflow.events import EffectStarted, NodeRetried, NodeStarted, Record, Spent
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.runtime.advance import Fold
from graphflow.runtime.ledger import TOKENS, Amount, Amounts, Meter, amounts_of
from tests.laws.driver import Driver

ONE_RUN = (1, 0, 0, 0, 0, Decimal(0))


def audit(fold: Fold) -> None:
    """Every meter holds what its grants, effects in flight and open children say, and nothing is overspent."""
    promised: dict[Meter, list[Amount]] = {}
    for frame in fold.open_frames():
        promised.setdefault(frame.meter, [*amounts_of(None)])
        if frame.set_aside:
            _count(promised, frame.meter.chain(), ONE_RUN)
        if frame.grant is not None:
            assert frame.meter.parent is not None
            _count(promised, frame.meter.parent.chain(), amounts_of(frame.grant))
    for visit in fold.visits.values():
        for reserved in visit.flying.values():
            _count(promised, visit.token.frame.meter.chain(), reserved)
    for meter, expected in promised.items():
        assert meter.reserved == expected, f"{meter.path}: {meter.reserved} stand as reserved, not {expected}"
        for dimension, granted in enumerate(meter.granted):
            free = meter.free(dimension)
            if granted is None or free is None:
                continue
            assert granted == meter.spent[dimension] + meter.reserved[dimension] + free
            assert free >= 0, f"{meter.path}: {ADDITIVE[dimension]} is overspent by {-free}"


def _count(promised: dict[Meter, list[Amount]], meters: Iterable[Meter], amounts: Amounts) -> None:
    for meter in meters:
        old = promised.setdefault(meter, [*amounts_of(None)])
        promised[meter] = [a + b for a, b in zip(old, amounts, strict=True)]


class Tally:
    """Adds up what the events say, record by record, and compares."""

    def __init__(self) -> None:
        self.amounts: list[Amount] = [*amounts_of(None)]

    def __call__(self, driver: Driver, record: Record) -> None:
        """Count a record, and audit the accounts."""
        for amounts in _said(record):
            self.amounts = [a + b for a, b in zip(self.amounts, amounts, strict=True)]
        audit(driver.fold)
        assert driver.fold.total() == self.amounts


def _said(record: Record) -> Iterator[Amounts]:
    """What each decision of a record says was spent."""
    for decision in record.decisions:
        match decision:
            case NodeStarted():
                yield ONE_RUN
            case NodeRetried():
                yield amounts_of(Budget(node_runs=1, retries=1))
            case EffectStarted(reserved=Budget() as cost):
                yield (*amounts_of(cost)[:TOKENS], 0, Decimal(0))
            case Spent():
                yield amounts_of(decision.usage)
            case _:
                pass
