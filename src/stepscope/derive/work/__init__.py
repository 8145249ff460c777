"""What the GPU's kernels do, what that work needs, and what it should cost.

`roles`: what a kernel does, by its name. `sizes`: its elements and bytes. `phases` and `parts`: to which pass and part
of the model it belongs. `reference` and `good`: what the same work costs when done well.
"""
