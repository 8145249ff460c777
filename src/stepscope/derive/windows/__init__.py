"""Which stretch of a capture a question is about: the step, a chunk of it, a period, a span that the user gave.

Every question that has a window asks here, so that two answers about "the step" are about the same one. Also what was
cut: ranks whose capture ended early, time that lies between the windows.
"""
