"""From figures to conclusions: detectors look at a case and say what a step could give back (semantics §10)."""
