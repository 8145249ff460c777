"""What two sides have in common, and what not: a change can be attributed to one variable only if one has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.capture import manifest
from stepscope.derive.pytorch.compiled import INDUCTOR
from stepscope.model.labels import parse_setup
from stepscope.model.profile import Profile

Facts = dict[str, str]

#: A side that has none of what the other has besides.
NOTHING = "-"

#: What a job is: where one of these differs, another job was run.
JOB = ("gpu", "world", "mesh", "graphs", "window", "steps are")
#: Follow from the format: told apart only between captures of one format.
_OF_FORMAT = ("tool", "traced", "graphs_as")
#: In a manifest, but told better by the profile itself, or of no consequence for a step's time.
_SKIPPED = (
    *("machine.gpus", "mesh", "ranks", "traced", "steps", "warmup", "per", "shape", "backend", "trigger", "ranges"),
    *("versions.stepscope", "versions.nsys", "environment.STEPSCOPE", "environment.WORLD_SIZE"),
)


@dataclass(frozen=True)
class Difference:
    """One thing that the sides do not share. `variable` says that it may change the step by itself."""

    what: str
    base: str
    new: str
    variable: bool = True

    @property
    def job(self) -> bool:
        """Whether another job was run, rather than the same one otherwise."""
        return self.what in JOB or self.what.startswith("setup ")


def facts_of(profile: Profile, window: str, kind: str, graphs: str | None, recorded: int = 0) -> Facts:
    """What the profile says about the job, the machine and the capture; what it does not say is not there."""
    facts: dict[str, str | None] = {
        "gpu": _listed(profile.ranks["gpu"].drop_nulls().to_list()),
        "world": str(max(_world(profile), recorded)),
        "format": _listed([s.format.partition("-")[0] for s in profile.sources]),
        "tool": _listed([s.tool for s in profile.sources if s.tool]),
        "graphs": graphs,
        "window": window,
        "steps are": kind,
        "labels": profile.labels.identity,
        "torch.compile": _compiled(profile),
    }
    labels = [s for s in (parse_setup(t) for t in profile.ranks["setup"].drop_nulls().to_list()) if s]
    if labels:
        facts["mesh"] = " ".join(f"{axis}={size}" for axis, (_, size) in labels[0].axes.items())
        facts |= {f"setup {k}": _listed([s.extra.get(k, "") for s in labels]) for k in labels[0].extra}
    for key in sorted({k for s in profile.sources for k in s.facts}):
        facts[key] = _listed([s.facts[key] for s in profile.sources if key in s.facts])
    return {k: v for k, v in facts.items() if v}


def _compiled(profile: Profile) -> str | None:
    """Whether kernels of torch.compile ran, by inductor's names of them; not known without kernels."""
    if not profile.has("ops") or not profile.ops.height:
        return None
    ids = profile.ops["name"].unique()  # first: reading the ops adds their names
    return "yes" if profile.names.gather(ids).str.contains(INDUCTOR).any() else "no"


def _world(profile: Profile) -> int:
    """Ranks of the job, where it says; else those that were recorded."""
    sizes = profile.ranks["world_size"].drop_nulls().to_list()
    return max([profile.ranks.height, *map(int, sizes)])


def _listed(values: Sequence[str]) -> str:
    return ", ".join(sorted({v for v in values if v}))


def differences(
    base: Facts, new: Facts, manifests: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = (None, None)
) -> list[Difference]:
    """What differs, the job first. What only one side knows is not a difference: see `unknown`."""
    other_format = base.get("format") != new.get("format")
    keys = sorted((k for k in base if k in new and base[k] != new[k]), key=lambda k: k not in JOB)
    kept = [k for k in keys if not (other_format and k in _OF_FORMAT)]
    # Another mesh is another world: one change, not two.
    differences = [Difference(k, base[k], new[k], variable=not (k == "world" and "mesh" in kept)) for k in kept]
    if ("graphs" in base) != ("graphs" in new):
        differences.append(Difference("graphs", base.get("graphs", "none whole"), new.get("graphs", "none whole")))
    if manifests[0] is not None and manifests[1] is not None:
        differences += [
            Difference(key, *_shown(a, b), variable=not key.startswith(("git.", "tags.")))
            for key, a, b in manifest.differences(manifests[0], manifests[1])
            if not key.startswith(_SKIPPED)
        ]
    return differences


def unknown(base: Facts, new: Facts) -> list[str]:
    """What only one side says, and a reader would want to know of both."""
    wanted = [k for k in ("gpu", "mesh", "driver", "cuda") if (k in base) != (k in new)]
    return wanted + sorted(k for k in base.keys() ^ new.keys() if k.startswith("setup "))


def _shown(base: Any, new: Any) -> tuple[str, str]:
    """Both values as text; of two lists, such as command lines, what only one of them has."""
    if isinstance(base, list) and isinstance(new, list):
        mine, theirs = _options(base), _options(new)
        own, other = ([w for w in a if w not in b] for a, b in ((mine, theirs), (theirs, mine)))
        if own or other:
            return _words(own), _words(other)
    return _words(base), _words(new)


def _options(words: list[Any]) -> list[str]:
    """The words of a command line, options together with their values."""
    options: list[str] = []
    for word in map(str, words):
        if options and options[-1].startswith("-") and not word.startswith("-") and " " not in options[-1]:
            options[-1] += f" {word}"
        else:
            options.append(word)
    return options


def _words(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or NOTHING
    return "not set" if value is None else str(value)


def condition(facts: Facts) -> str:
    """What a statement holds for: `8 ranks, pp=2 ep=4, seq 4096`."""
    ranks = int(facts.get("world", 1))
    parts = [f"{ranks} rank{'s' * (ranks != 1)}"]
    sizes = [p for p in facts.get("mesh", "").split() if not p.endswith("=1")]
    parts += [" ".join(sizes)] if sizes else []
    parts += [f"{k} {facts[f'setup {k}']}" for k in ("mbs", "seq") if f"setup {k}" in facts]
    return ", ".join([*parts, *([facts["gpu"]] if "gpu" in facts else [])])


def within(sides: Sequence[Facts]) -> list[str]:
    """What differs between the runs of one side."""
    first = sides[0]
    return sorted({k for other in sides[1:] for k in first.keys() & other.keys() if first[k] != other[k]})
