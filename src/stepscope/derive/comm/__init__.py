"""Communication within and across ranks: what an op is, whom it belongs to, what it meets on other ranks, on one clock.

For every question across ranks. Matching is done once per profile; bandwidths, waits and lateness are read off it.
"""
