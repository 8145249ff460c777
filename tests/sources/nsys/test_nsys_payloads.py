"""NCCL's payloads: from blobs, from JSON, from parquet; and calls that carry none."""

from __future__ import annotations

import csv
import struct
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from nsys_files import KERNEL, NVTX, global_id, kernel, range_, strings, texts, write

from stepscope.model.schema import TABLES
from stepscope.sources.nsys import open_parquet, open_sqlite

FIRST = 1 << 24
SEND, INIT, REDUCE, OPERATIONS = FIRST + 9, FIRST + 11, FIRST + 5, FIRST + 20


def blob(schema: int, payload: bytes) -> bytes:
    return struct.pack("<QQQQ", 1, schema, len(payload), 32) + payload


def entries(schema: int, *fields: tuple[str, int, int | None]) -> list[dict[str, object]]:
    return [{"domainId": 1, "schemaId": schema, "name": n, "type": t, "offset": o} for n, t, o in fields]


SCHEMAS = [
    *entries(SEND, ("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8), ("Peer rank", 5, 16)),
    *entries(INIT, ("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12)),
    *entries(
        REDUCE,
        ("NCCL communicator ID", 18, None),
        ("Message size [bytes]", 22, 8),
        ("Reduction operation", OPERATIONS, 16),
    ),
] * 2  # once per process
CALLS = strings("ncclCommInitRank", "ncclSend", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd", "ncclCommSplit")


def nccl(
    start: int, name: int, payload: bytes | None = None, json: str | None = None, pid: int = 7
) -> dict[str, object]:
    return {**range_(start, start + 1, None, pid=pid, textId=name, domainId=1), "binaryData": payload, "jsonText": json}


def export(path: Path, calls: list[dict[str, object]]) -> Path:
    tables = {"StringIds": CALLS, KERNEL: [kernel(1, 2)], NVTX: calls, "NVTX_PAYLOAD_SCHEMA_ENTRIES": SCHEMAS}
    return write(path, tables)


def test_blobs(tmp_path: Path) -> None:
    wide, narrow = 0xF123456789ABCDEF, 5
    padding = b"\xde\xad\xbe\xef"  # NCCL leaves what lies after the last field as it was
    path = export(
        tmp_path / "a.sqlite",
        [
            nccl(-90, 1, blob(INIT, struct.pack("<Qii", narrow, 2, 0))),
            nccl(-80, 1, blob(INIT, struct.pack("<Qii", wide, 8, 6))),
            nccl(-70, 6, blob(INIT, struct.pack("<Qii", wide, 99, 98))),
            nccl(10, 2, blob(SEND, struct.pack("<QQi", wide, 1 << 33, 3) + padding)),
            nccl(20, 3, blob(REDUCE, struct.pack("<QQi", narrow, 4, 4) + padding)),
            nccl(30, 3),
        ],
    )
    source = open_sqlite(path)
    assert source.processes().select("rank", "rank_from", "world_size").row(0) == (6, "NCCL payload", 8)
    frame = texts(source, "comms")
    assert frame.select("op", "communicator", "bytes", "peer", "comm_rank", "comm_size").rows() == [
        ("ncclSend", "0xf123456789abcdef", 1 << 33, 3, 6, 8),
        ("ncclAllReduce", "0x5", 4, None, 0, 2),
        ("ncclAllReduce", None, None, None, None, None),
    ]
    assert texts(source, "comms", "detail")["reduction"].to_list() == [None, "Avg", None]


@pytest.mark.parametrize(
    "json",
    [
        '{"NCCL communicator ID":18446744073709551615,"Message size [bytes]":1048576,"Peer rank":3}',
        '{"NCCL communicator ID":"18,446,744,073,709,551,615","Message size [bytes]":"1,048,576","Peer rank":"3"}',
    ],
)
def test_json(tmp_path: Path, json: str) -> None:
    frame = texts(
        open_sqlite(export(tmp_path / "a.sqlite", [nccl(1, 2, json=json), nccl(5, 2, json="{oops")])), "comms"
    )
    assert frame.select("communicator", "bytes", "peer").rows() == [
        ("0xffffffffffffffff", 1 << 20, 3),
        (None, None, None),
    ]


def test_groups(tmp_path: Path) -> None:
    """The capture begins inside a group; later groups nest."""
    names = [5, 3, 4, 2, 4, 2, 5, 5, 3]
    calls = [nccl(10 * at, name) for at, name in enumerate(names)]
    calls.append({**nccl(35, 2), "globalTid": global_id(7, 99)})  # another thread is in no group
    frame = texts(open_sqlite(export(tmp_path / "a.sqlite", calls)), "comms")
    main = frame.filter(pl.col("tid") == 7)
    assert main["depth"].to_list() == [0, 0, 0, 1, 1, 2, 1, 0, 0]
    assert frame.filter(pl.col("tid") == 99)["depth"].to_list() == [0]


def test_sqlite_and_parquet_agree(shared: Path) -> None:
    sqlite = open_sqlite(shared / "h200/payloads/overlapped.sqlite")
    parquet = open_parquet(shared / "h200/payloads/overlapped_pqtdir")
    assert sqlite.tables() == parquet.tables()
    assert sqlite.processes().equals(parquet.processes())
    for table in TABLES:
        for part in ("core", "detail"):
            assert texts(sqlite, table, part).equals(texts(parquet, table, part)), (table, part)
    assert sqlite.quality.notes == parquet.quality.notes


def test_a_whole_run(shared: Path) -> None:
    source = open_sqlite(shared / "h200/payloads/overlapped.sqlite")
    assert source.processes()["world_size"].to_list() == [4] * 4
    frame = texts(source, "comms")
    told = frame.drop_nulls("communicator")
    assert Counter(told["op"].to_list()) == {
        "ncclAllReduce": 20,
        "ncclAlltoAll": 384,
        "ncclCommInitRankConfig": 8,
        "ncclSend": 48,
        "ncclRecv": 48,
    }
    assert told["communicator"].n_unique() == 3
    assert told["comm_size"].null_count() == 0
    sends = told.filter(pl.col("op") == "ncclSend")
    assert sends["depth"].unique().to_list() == [2]
    assert sends["peer"].unique().sort().to_list() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["overlapped", "serialized"])
def test_a_default_export_has_the_calls_but_not_what_they_say(shared: Path, name: str) -> None:
    golden = shared.parent / f"golden/nccl-payloads/moe4_{name}_nccl_payloads.tsv"
    with golden.open() as file:
        expected = sorted((int(r["start"]), int(r["end"]), r["call"]) for r in csv.DictReader(file, delimiter="\t"))
    frame = texts(open_sqlite(shared / f"h200/moe4/{name}.sqlite"), "comms")
    calls = frame.filter(~pl.col("op").str.starts_with("ncclGroup"))
    assert calls.select("start_ns", "end_ns", "op").sort("start_ns", "end_ns", "op").rows() == expected
    assert frame["communicator"].null_count() == frame.height
