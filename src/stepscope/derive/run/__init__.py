"""The run: where everything that was captured went, beyond the step that other questions look at.

Kinds of steps and how often each recurs, what lies between steps, and start-up.
"""
