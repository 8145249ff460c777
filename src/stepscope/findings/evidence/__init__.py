"""What several detectors look at: the hosts, the communication and the compute of a case, as tables."""
