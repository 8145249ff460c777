"""Two runs against each other: what differs, what the change of the step is made of, and whether it is noise."""
