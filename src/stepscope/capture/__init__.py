"""Capture a profile: plan it, launch it under a profiler, write down what was run. See docs/capture.md."""
