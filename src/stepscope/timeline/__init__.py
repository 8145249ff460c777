"""The timeline: rows of marks at every level of detail, of a window for reports, of a whole capture for servers."""
