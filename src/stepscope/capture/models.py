"""Models that a plan knows by name: TOML files beside this one, in the user's configuration, or given by path."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from stepscope.errors import BadInput

_OWN = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Model:
    """The shape of a model, as far as planning needs it."""

    name: str
    layers: int
    width: int
    experts: int = 0  # routed experts of a layer; 0 for a dense model
    experts_per_token: int = 0
    expert_width: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    dense_width: int = 0
    heads: int = 0
    kv_heads: int = 0
    vocabulary: int = 0
    source: str = ""


def user_folder() -> Path:
    """Where users put models of their own."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "stepscope" / "models"


def names() -> list[str]:
    """Every model that there is a file for."""
    return sorted({f.stem for folder in (_OWN, user_folder()) for f in folder.glob("*.toml")})


def load(name: str) -> Model:
    """A model by its name, or by the path of a TOML file."""
    if name.endswith(".toml"):
        return _read(Path(name))
    for folder in (user_folder(), _OWN):
        if (file := folder / f"{name}.toml").is_file():
            return _read(file)
    raise BadInput(
        f"--model {name}: not known", f"known are {', '.join(names())}; or give a TOML file (docs/capture.md)"
    )


def _read(file: Path) -> Model:
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"--model {file}: cannot read it ({error.strerror})", "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"--model {file}: {error}", "write it as TOML") from None
    known = {f.name: f for f in fields(Model)}
    unknown = [k for k in data if k not in known]
    missing = [k for k in ("name", "layers", "width") if k not in data]
    if unknown or missing:
        what = f"no key {unknown[0]!r}" if unknown else f"{missing[0]} is missing"
        raise BadInput(f"--model {file}: {what}", f"the keys are {', '.join(known)}")
    for key, value in data.items():
        text = key in ("name", "source")
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not (isinstance(value, str) if text else number):
            raise BadInput(f"--model {file}: {key} = {value!r}", f"give {key} a {'text' if text else 'number'}")
    return Model(**data)
