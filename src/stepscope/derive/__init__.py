"""What can be established from a profile's tables before any question is asked.

Each package here owns a few notions and nothing else: one place that decides what a step is, which call synchronizes,
which communication belongs together. Analyses, findings, comparisons and checks read them; none decides again. What
one question alone needs lies beside that question. Rooms know only those to their left (docs/architecture.md).
"""
