"""From figures to conclusions: detectors look at a case and say what a step could save (semantics §10)."""
