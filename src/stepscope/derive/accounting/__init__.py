"""Where a window went, without remainder: its partition, who owns each instant, what is exposed, range by range.

For `breakdown`, `overlap`, `exposed`, `nvtx` and `compare`, whose parts sum to the window to the nanosecond.
"""
