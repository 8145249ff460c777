"""Runs docs/notebook.ipynb and writes what its cells show into it; `generate.py` and its test call it.

A plain runner: cells are Python (no `!` or `%`), in one namespace, in an empty folder beside the tests. The value of a
last line is shown as a notebook shows it, by its `_repr_html_`. Outputs are pinned, so cells show no frames of Polars
as such: how those look is a matter of its version.
"""

from __future__ import annotations

import ast
import io
import json
import os
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "notebook.ipynb"


def executed() -> str:
    """The notebook with the outputs of a run; an error of a cell is the caller's."""
    notebook = json.loads(FILE.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        # As in a clone: cells run beside this file, and find the traces that ship with the repository.
        (Path(folder) / "tests").symlink_to(FILE.parent.parent / "tests")
        (Path(folder) / "docs").mkdir()
        os.chdir(Path(folder) / "docs")
        try:
            for number, cell in enumerate(cells, 1):
                cell["execution_count"] = number
                cell["outputs"] = _outputs("".join(cell["source"]), names, number)
        finally:
            os.chdir(here)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a cell prints, and what its last line is."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as said:
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        value = eval(compile(last, f"cell {number}", "eval"), names) if last is not None else None
    found: list[dict[str, Any]] = []
    if text := said.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        found.append(
            {"data": _shown(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return found


def _shown(value: Any) -> dict[str, list[str]]:
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_().splitlines(keepends=True)}
    return {"text/plain": repr(value).splitlines(keepends=True)}
