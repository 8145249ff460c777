"""Memory of the GPU: what the allocator gave out over time, and what a declared model would need."""
