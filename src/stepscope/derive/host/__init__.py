"""What the host did, and what that did to the GPU: causes of idle time, waits, the launch queue.

For `idle`, `launches` and `compile`, and for the graph that the critical path and replays walk.
"""
