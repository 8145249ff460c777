"""Interval algebra on sorted, disjoint spans: union, subtract, intersect, gaps, coverage.

Intervals are half open, times int64 nanoseconds, columns NumPy arrays. Everything is vectorized, at most n log n.
"""

from stepscope.intervals.spans import Spans, covered, distinct, gaps, intersect, join, subtract, union

__all__ = ["Spans", "covered", "distinct", "gaps", "intersect", "join", "subtract", "union"]
