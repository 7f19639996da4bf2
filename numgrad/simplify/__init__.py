"""Rewriting a graph into a cheaper and numerically safer one that means the same."""

from . import arithmetic, stable, structure
from .passes import simplify
from .rules import RULES, rule_table

__all__ = ["RULES", "arithmetic", "rule_table", "simplify", "stable", "structure"]
