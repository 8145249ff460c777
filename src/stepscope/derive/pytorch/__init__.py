"""What torch left in a trace: compiled regions and graph breaks, Python stacks of both profilers, its compiler's log.

For `compile`, `source` and the finding on graph breaks.
"""
