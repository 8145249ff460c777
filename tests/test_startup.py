"""What must stay light stays light: measured by what is imported, not by the clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("polars", "numpy", "rich", "msgspec", "adbc_driver_manager", "xxhash")


def loaded_after(code: str) -> set[str]:
    """Heavy packages in sys.modules after running `code` in a fresh interpreter."""
    report = f"\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import stepscope; stepscope.BadInput, dir(stepscope)",
        "from stepscope.cli.main import run; run(['--help'])",
        "from stepscope.cli.main import run; run(['--version'])",
        "from stepscope.cli.main import run; run([])",
    ],
)
def test_nothing_heavy_is_imported(code):
    assert loaded_after(code) == set()


def test_piped_answers_do_not_need_rich_s_consoles():
    code = "import stepscope.cli.analysis, stepscope.render.table, sys; assert 'rich.console' not in sys.modules"
    assert "polars" in loaded_after(code)
