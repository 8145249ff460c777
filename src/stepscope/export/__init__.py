"""A profile in the forms of others: Perfetto's traces, Chrome JSON, Parquet; whole, cut to a window, or anonymized."""
