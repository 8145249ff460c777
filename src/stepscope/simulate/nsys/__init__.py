"""Writing a simulated node as nsys would have exported it."""
