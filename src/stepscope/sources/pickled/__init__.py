"""Pickles that torch writes, read without running anything: one loop over opcodes for all of them."""
