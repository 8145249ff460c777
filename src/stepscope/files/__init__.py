"""Files of others that must not change while they are read, and files of ours that are there whole or not at all."""
