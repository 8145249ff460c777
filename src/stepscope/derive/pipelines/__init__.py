"""Pipeline parallelism: schedules and the bubble that each leaves by itself.

For `pipeline` and the findings on bubbles.
"""
