"""What came out, as plain columns, before any file format."""
