"""Files of users in TOML: what is wrong with one is said in a line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from stepscope.errors import BadInput


def read_toml(path: Path, called: str, hint: str) -> tuple[dict[str, Any], str]:
    """Its content and its text; `called` is what a message begins with, `hint` says what the file is to be like."""
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text), text
    except OSError as error:
        raise BadInput(f"{called}: cannot read it ({error.strerror})", "give an existing TOML file") from None
    except RecursionError:
        raise BadInput(f"{called}: lists within lists, too deep", hint) from None
    except ValueError as error:  # of TOML, and of UTF-8
        raise BadInput(f"{called}: not valid TOML ({error})", hint) from None
