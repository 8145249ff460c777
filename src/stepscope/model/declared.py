"""Models that are declared, not recorded: TOML files in `presets`, in the user's configuration or given by path, or
keys and values in the option itself (`layers=6,width=1024`). Plans, FLOPs and memory estimates are made of them.

`matrices` is the one place that knows which products a token passes through: parameters and FLOPs follow from it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from stepscope.errors import BadInput, meant
from stepscope.model.tomlfile import read_toml

_OWN = Path(__file__).parent / "presets"
#: No width and no number of layers is as large; products of several must still be numbers.
_MOST = 1 << 40
#: Shown where a name is not known (Llama 3.1 8B).
_EXAMPLE = "layers=32,width=4096,heads=32,kv_heads=8,dense_width=14336,vocabulary=128256"


@dataclass(frozen=True)
class Model:
    """The shape of a transformer. Null widths follow from the others: see `head`, `value` and `feed_forward`."""

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
    kv_heads: int = 0  # 0: as many as heads
    vocabulary: int = 0
    head_width: int = 0  # of a query and a key; 0: width / heads
    value_width: int = 0  # of a value; 0: that of a query
    #: Latent attention (DeepSeek): ranks of what keys and values, and queries, are projected through; and the part of
    #: `head_width` that carries the position and is shared by all heads.
    kv_rank: int = 0
    q_rank: int = 0
    rope_width: int = 0
    gated: bool = True  # feed-forward of three matrices (SwiGLU), not two
    tied: bool = False  # the embedding is the output's matrix
    qk_norm: bool = False  # queries and keys are normed, head by head (Qwen3)
    layer_norm: bool = False  # LayerNorm and learned positions (GPT), not RMSNorm and rotary ones
    bias: bool = False  # products have a bias
    source: str = ""

    @property
    def head(self) -> int:
        """Width of a query and of a key, per head."""
        return self.head_width or (self.width // self.heads if self.heads else 0)

    @property
    def value(self) -> int:
        """Width of a value, per head."""
        return self.value_width or self.head

    @property
    def mixture_layers(self) -> int:
        """Layers whose feed-forward is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0


@dataclass(frozen=True)
class Matrix:
    """Equal weight matrices of a model: how many there are, and through how many of them a token passes."""

    part: str
    inputs: int
    outputs: int
    copies: int
    used: int

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs * self.copies

    @property
    def flops(self) -> int:
        """Of one token's forward pass: a multiplication and an addition per parameter that is used."""
        return 2 * self.inputs * self.outputs * self.used


def matrices(model: Model) -> list[Matrix]:
    """Every product of activations with weights in the model; embeddings are looked up, not multiplied."""
    each = [*_attention(model), *_feed_forward(model)]
    if model.vocabulary:
        each.append(Matrix("output", model.width, model.vocabulary, 1, 1))
    return [m for m in each if m.parameters]


def vectors(model: Model) -> int:
    """Parameters of a layer that are not matrices: of its norms, and biases."""
    norms = 2 * model.width * (2 if model.layer_norm else 1) + (2 * model.head if model.qk_norm else 0)
    if not model.bias:
        return norms
    keys = (model.kv_heads or model.heads) * (model.head + model.value)
    up = model.dense_width * (2 if model.gated else 1)
    return norms + model.heads * model.head + keys + model.width + up + model.width


def parameters(model: Model) -> int:
    """All of the model's parameters: matrices, the embedding unless it is tied, norms and biases."""
    embedding = 0 if model.tied else model.vocabulary * model.width
    last = model.width * (2 if model.layer_norm else 1) if model.vocabulary else 0
    return sum(m.parameters for m in matrices(model)) + embedding + model.layers * vectors(model) + last


def _attention(model: Model) -> list[Matrix]:
    n, width, queries = model.layers, model.width, model.heads * model.head
    output = Matrix("attention output", model.heads * model.value, width, n, n)
    if model.kv_rank:
        keys = model.heads * (model.head - model.rope_width + model.value)
        query = (
            [Matrix("query", width, model.q_rank, n, n), Matrix("query", model.q_rank, queries, n, n)]
            if model.q_rank
            else [Matrix("query", width, queries, n, n)]
        )
        down = Matrix("key, value", width, model.kv_rank + model.rope_width, n, n)
        return [*query, down, Matrix("key, value", model.kv_rank, keys, n, n), output]
    keys = (model.kv_heads or model.heads) * (model.head + model.value)
    return [Matrix("query", width, queries, n, n), Matrix("key, value", width, keys, n, n), output]


def _feed_forward(model: Model) -> list[Matrix]:
    width, dense, sparse = model.width, model.layers - model.mixture_layers, model.mixture_layers
    per = 3 if model.gated else 2
    return [
        Matrix("feed-forward", width, model.dense_width, per * dense, per * dense),
        Matrix("router", width, model.experts, sparse, sparse),
        Matrix(
            "experts",
            width,
            model.expert_width,
            per * sparse * model.experts,
            per * sparse * model.experts_per_token,
        ),
        Matrix(
            "shared experts",
            width,
            model.expert_width,
            per * sparse * model.shared_experts,
            per * sparse * model.shared_experts,
        ),
    ]


def user_folder() -> Path:
    """Where users put models of their own."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "stepscope" / "models"


def names() -> list[str]:
    """Every model that there is a file for."""
    return sorted({f.stem for folder in (_OWN, user_folder()) for f in folder.glob("*.toml")})


def load(name: str) -> Model:
    """A model by its name, by the path of a TOML file, or written out: `layers=6,width=1024`."""
    if "=" in name and not name.endswith(".toml"):
        return _checked(_written_out(name), name)
    if name.endswith(".toml"):
        return _read(Path(name))
    for folder in (user_folder(), _OWN):
        if (file := folder / f"{name}.toml").is_file():
            return _read(file)
    close = meant(name, names())
    listed = f"{close} There are {', '.join(names())}" if close else f"there are {', '.join(names())}"
    hint = f"{listed}; or write it out, here or in a TOML file: {_EXAMPLE}"
    raise BadInput(f"--model {name}: not known", hint)


def _read(file: Path) -> Model:
    data, _ = read_toml(file, f"--model {file}", "docs/capture.md has the keys")
    return _checked(data, str(file))


def _written_out(text: str) -> dict[str, object]:
    """`layers=6,width=1024,gated=false` as data."""
    pairs = [part.partition("=")[::2] for part in text.split(",") if part.strip()]
    return {"name": "the model as given", **{key.strip(): _value(value.strip()) for key, value in pairs}}


def _value(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isascii() and text.isdigit() else text


def _checked(data: dict[str, object], given: str) -> Model:
    kinds = {f.name: f.type for f in fields(Model)}
    unknown = [k for k in data if k not in kinds]
    missing = [k for k in ("name", "layers", "width") if k not in data]
    if unknown or missing:
        what = f"no key {unknown[0]!r}" if unknown else f"{missing[0]} is missing"
        raise BadInput(f"--model {given}: {what}", f"the keys are {', '.join(kinds)}")
    for key, value in data.items():
        if not _fits(value, str(kinds[key])):
            word = {"str": "a text of one line", "bool": "true or false"}.get(str(kinds[key]), "a number")
            raise BadInput(f"--model {given}: {key} = {value!r}", f"give {key} {word}")
    model = Model(**data)  # type: ignore[arg-type]
    for part, of in (("dense_layers", "layers"), ("experts_per_token", "experts"), ("rope_width", "head")):
        have, most = getattr(model, part), getattr(model, of)
        if have > most:
            raise BadInput(f"--model {given}: {part} = {have}, but {of} = {most}", "a part cannot exceed the whole")
    return model


def _fits(value: object, kind: str) -> bool:
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    return isinstance(value, bool) if kind == "bool" else isinstance(value, str) and value.isprintable()
