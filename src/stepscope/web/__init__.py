"""Whole traces in the browser: a server that sends what a view needs, by level of detail (docs/serve.md)."""
