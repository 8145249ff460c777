"""Is a capture any good? Checks of a profile, each with what was found, what was expected, and what to do."""

from __future__ import annotations

from stepscope.verify.verify import Expected, expected_of, together, verify

__all__ = ["Expected", "expected_of", "together", "verify"]
