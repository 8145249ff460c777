"""Memory of the GPU: what the allocator gave out and to whom, what a moment's reserved bytes are made of, and what a
declared model would need.
"""
