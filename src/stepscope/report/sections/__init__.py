"""One file per section of the report. Each has `TITLE` and `make(asker) -> Part`; what cannot be answered raises."""
