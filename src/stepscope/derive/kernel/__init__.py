"""Inside a kernel: what Nsight Compute measured of it, the work that it did, the roofs above it, and what bounds it.

Also which ops of a timeline are the kernels that were measured.
"""
