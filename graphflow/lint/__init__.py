"""Lint of a run: signs in its events that the team did not work as it should, and what to change."""

from graphflow.lint.rules import CODES as CODES
from graphflow.lint.rules import RULES as RULES
from graphflow.lint.rules import Rule as Rule
from graphflow.lint.rules import lint as lint
from graphflow.lint.symptom import Limits as Limits
from graphflow.lint.symptom import Symptom as Symptom

__all__ = ("CODES", "RULES", "Limits", "Rule", "Symptom", "lint")
