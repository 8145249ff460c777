"""A query that computes for many minutes, for tests of calls that are cancelled."""

#: DuckDB computes this in one function, which does not look whether it is to stop, and knows no shorter way.
DEAF = "SELECT list_sum(list_transform(range(20000000), lambda x: list_sum(range(5000 + x % 7)))) AS x"
