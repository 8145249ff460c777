"""Dumps of PyTorch's flight recorder, and what lies beside them: stacks of py-spy, logs, `ncclras`, the kernel's
log."""
