"""What torch left in a trace: compiled regions and graph breaks, its ops and passes, frames of Python.

For `compile`, `source`, `compute` and the finding on graph breaks.
"""
