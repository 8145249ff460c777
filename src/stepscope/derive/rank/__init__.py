"""One rank as arrays: its ops, calls and launches, its ranges and how they nest, its CUDA graphs.

Everything else starts here: whatever looks at events looks at them one rank at a time, as columns.
"""
