"""Writing a simulated rank as torch.profiler would have exported it."""
