"""The values of a run: ids, budget, context, contracts, outcomes, state."""
