"""What each op waited for: stream order, events, its launch, other ranks; and the path that set the step's length.

For `critical-path` and `concurrency`, and for the replays that findings rest on.
"""
