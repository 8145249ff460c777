"""FLOPs: of torch ops by their shapes, and of kernels that a profiler counted (semantics §16)."""
