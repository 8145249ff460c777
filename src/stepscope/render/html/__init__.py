"""Pages: the report and recipes, each one file that asks no network anything."""
