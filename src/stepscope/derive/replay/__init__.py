"""The step again with something changed: a `Change` says what, the replay says how long the step is then.

For `critical-path --what-if` and for every finding: what fixing it would give back.
"""
