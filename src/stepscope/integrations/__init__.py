"""Frameworks, a file each. None is imported unless the program uses it, and none imports its framework by itself.

Training jobs import these: only the standard library and `stepscope.annotate` are used.
"""
