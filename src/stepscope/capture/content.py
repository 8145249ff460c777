"""What the manifest of a capture says: the scenario, and what came of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stepscope.capture import manifest, wants, watch
from stepscope.capture.nsys import Nsys, version_of
from stepscope.capture.spec import Spec


def _own_version() -> str | None:
    """None where stepscope is only on the PYTHONPATH."""
    try:
        return version("stepscope")
    except PackageNotFoundError:
        return None


def _recorded(spec: Spec, backend: str) -> tuple[str, ...]:
    return wants.recorded(spec.wants, backend, Nsys.there(spec.nsys), spec.by_steps) if spec.wants else ()


def of(
    spec: Spec, backend: str, folder: Path, steps: watch.Steps, files: list[Path], took_s: float, ended: bool
) -> dict[str, Any]:
    nsys = version_of(spec.nsys) if backend == "nsys" else None
    about = {k: v for k, v in steps.about.items() if k in ("torch", "cuda", "nccl", "driver")}
    machine = manifest.machine()
    return {
        "scenario": {
            "backend": backend,
            "command": manifest.safe_command(spec.command),
            "environment": manifest.safe_environment({**os.environ, **spec.environment(backend, folder, "")}),
            "versions": {
                "stepscope": _own_version(),
                "nsys": ".".join(map(str, nsys)) if nsys else None,
                "python": machine.pop("python"),
                **about,
            },
            "machine": machine,
            "mesh": {axis: size for axis, (_, size) in steps.axes.items()},
            "shape": steps.shape,
            "ranks": spec.world or steps.ranks or None,
            "traced": list(spec.ranks) if spec.ranks is not None and backend == "torch" else None,
            "warmup": spec.warmup,
            "every": spec.every or None,
            "steps": spec.steps if any(p for mine in steps.times.values() for _, p in mine) else None,
            "with": list(_recorded(spec, backend)),
            "trigger": spec.trigger if backend == "nsys" else None,
            "ranges": spec.ranges if spec.by_steps else None,
            "per": spec.per if backend == "nsys" else "rank",
            "governor": steps.about.get("governor"),
            "tags": dict(spec.tags),
            "git": manifest.git_state(Path.cwd()),
        },
        "captured": {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "took_s": round(took_s, 1),
            "ended_after_capture": ended,
            "files": [{"name": str(f.relative_to(folder)), "bytes": f.stat().st_size} for f in files],
            "step_ns": steps.times,
            "step_began_ns": steps.began,
            "spans": steps.spans,
            "hooks": steps.hooks,
            "compiled_with": steps.compiled_with,
            "environments": {
                r: {k: v for k, v in said.items() if k != "label"} for r, said in steps.environments.items()
            },
        },
    }
