"""Makes `jobs` importable here."""
