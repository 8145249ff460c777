"""FLOPs: of torch ops by their shapes, of declared models, of kernels that a profiler counted (semantics §16)."""
