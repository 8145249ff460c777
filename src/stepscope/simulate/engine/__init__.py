"""The machine: ranks with hosts and streams, the network between them, and the record of both."""
