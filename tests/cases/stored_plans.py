"""All plans of the cases of stored runs, by name."""

from typing import Any

from tests.cases import stored_agents, stored_bodies, stored_budgets, stored_functions
from tests.cases.stored import Plan

PLANS: dict[str, Plan[Any]] = {
    **stored_functions.PLANS,
    **stored_agents.PLANS,
    **stored_budgets.PLANS,
    **stored_bodies.PLANS,
}
