"""Pipeline parallelism: chunks on each rank, the schedule their order shows, its ideal bubble.

For `pipeline` and the findings on bubbles.
"""
