"""Jobs that hang, whose truth is known: flight-recorder dumps of each rank, logs, and what was planted."""
