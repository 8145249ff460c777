"""What `stepscope export` wrote, read back: a folder of Parquet files, Chrome JSON, or a Perfetto trace of ours."""
