"""A cache of source tables in the user's cache directory, keyed by the content of the profile."""

from stepscope.store.background import drop, flush
from stepscope.store.cached import CachedSource, cached
from stepscope.store.disk import Disk

__all__ = ["CachedSource", "Disk", "cached", "drop", "flush"]
