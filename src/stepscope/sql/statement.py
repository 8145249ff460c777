"""What a query may be, and which tables it mentions: judged by DuckDB's own parser, on its tree, never by the text.

One statement, that reads: SELECT (WITH), EXPLAIN of one, DESCRIBE. What its tree may hold is listed here, so that a
later version of DuckDB cannot bring in something that nobody thought of: nodes that only read, the tables of the
profile, and the few table functions that make numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import BadInput

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ALLOWED = "allowed is one statement that reads: SELECT (WITH), EXPLAIN of one, DESCRIBE"
#: Nodes of a query that only read. Those of INSERT, UPDATE and DELETE may stand in a WITH.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE", "CTE_READING_NODE"})
#: Functions that stand in FROM, and read nothing.
_MAKERS = frozenset({"range", "generate_series", "unnest"})
_SCHEMAS = frozenset({"", "main"})
_CATALOGS = frozenset({"", "temp"})  # where DuckDB puts what is registered


@dataclass(frozen=True)
class Query:
    """A query that may run: what it mentions, in lower case."""

    text: str
    tables: frozenset[str]
    functions: frozenset[str]
    #: what a WITH names: it may hide a table of that name
    named: frozenset[str]
    explains: bool


def parse(connection: DuckDBPyConnection, text: str) -> Query:
    """The query, or a refusal in one line."""
    import duckdb

    try:
        text.encode()
        statements = connection.extract_statements(text)
    except UnicodeError:
        raise BadInput("the query is not valid Unicode", "write it as UTF-8") from None
    except duckdb.Error as error:
        raise BadInput(f"the query: {said(error)}", ALLOWED) from None
    if len(statements) != 1:
        raise BadInput("there is no query" if not statements else f"{len(statements)} statements", ALLOWED)
    kind, inner = statements[0].type.name, text
    explains = kind == "EXPLAIN"
    if explains:
        inner = _explained(text)
        try:
            kind = " ".join(s.type.name for s in connection.extract_statements(inner))
        except duckdb.Error as error:
            raise BadInput(f"the query: {said(error)}", ALLOWED) from None
    if kind == "MULTI":  # DuckDB would have to run another query first
        raise BadInput(
            "a PIVOT that does not name its columns is refused",
            "name them: PIVOT (SELECT rank, kind FROM ops) ON kind IN ('kernel', 'memcpy') USING count(*)",
        )
    if kind != "SELECT":
        raise _refused(kind)
    nodes = list(_walk(_tree(connection, inner)))
    for node in nodes:
        _check(node)
    return Query(
        text,
        tables=frozenset(node["table_name"].lower() for node in nodes if node.get("type") == "BASE_TABLE"),
        functions=frozenset(str(node["function_name"]).lower() for node in nodes if "function_name" in node),
        named=frozenset(entry["key"].lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", ())),
        explains=explains,
    )


def said(error: Exception) -> str:
    """What DuckDB says, without the picture of where."""
    text = str(error).partition("\n\nLINE ")[0].partition("\nLINE ")[0]
    return " ".join(text.split()).rstrip("!.")


def _refused(what: str) -> BadInput:
    return BadInput(f"{what} is refused", ALLOWED)


def _explained(text: str) -> str:
    """What an EXPLAIN explains."""
    import duckdb

    rest = text.encode()  # the tokenizer counts bytes
    for word in (b"explain", b"analyze"):
        words = [at for at, kind in duckdb.tokenize(rest.decode()) if kind.name != "comment"]
        if len(words) > 1 and rest[words[0] :].lower().startswith(word):
            rest = rest[words[1] :]
        elif word == b"explain":
            raise _refused("this EXPLAIN")
    return rest.decode()


def _tree(connection: DuckDBPyConnection, text: str) -> dict[str, Any]:
    ((made,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    tree: dict[str, Any] = json.loads(made)
    if tree.get("error"):
        raise BadInput(f"the query: {tree.get('error_message', 'cannot be read')}".rstrip("!"), ALLOWED)
    return tree


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    """Every node of the tree; without recursion, as queries may be nested deeply."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _check(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if not isinstance(kind, str):
        return
    if kind.endswith("_NODE") and kind not in _READING:
        raise _refused(kind.removesuffix("_NODE").removesuffix("_QUERY"))
    if kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name", "")).lower()
        if name not in _MAKERS:
            raise BadInput(f"{name or 'that'}() in FROM is refused: a query reads the profile alone", ALLOWED)
    if kind == "SHOW_REF" and node.get("show_type") != "DESCRIBE":
        raise BadInput(
            "SHOW and SUMMARIZE are refused", f"{ALLOWED}; `SELECT * FROM tables` and `FROM columns` list what there is"
        )
    if kind == "BASE_TABLE":
        schema, catalog = (str(node.get(k) or "").lower() for k in ("schema_name", "catalog_name"))
        if schema not in _SCHEMAS or catalog not in _CATALOGS:
            where = ".".join(filter(None, (catalog, schema, node["table_name"])))
            raise BadInput(f"no table {where}", "`SELECT * FROM tables` lists what there is")
