"""Lists of components (CycloneDX, JSON): of the core install, and of each extra.

    make sbom            into dist/sbom

cyclonedx-py lists what is installed in an environment of the wheel, from the packages' own metadata; what the page
contains is added, from the list that the page's build writes. The tool runs from uv's cache, outside that environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from distributions import ROOT, Environment, build, project, uv, without_checkout

TOOL = "cyclonedx-bom>=7,<8"
PAGE = ROOT / "src" / "stepscope" / "render" / "html" / "bundle" / "components.cdx.json"
_VALIDATE = """
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
check = JsonStrictValidator(SchemaVersion.V1_6).validate_str
print(json.dumps([str(check(json.dumps(listed)) or "") for listed in json.load(sys.stdin)]))
"""


def components(environment: Environment, folder: Path) -> dict[str, Any]:
    """The list of what is installed there, and of what the page contains."""
    made = folder / "environment.cdx.json"
    pyproject = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "application"]
    form = ["--output-reproducible", "--of", "JSON", "--sv", "1.6", "-o", made]
    _tool("cyclonedx-py", "environment", *pyproject, *form, environment.python)
    listed: dict[str, Any] = json.loads(made.read_text("utf-8"))
    within = json.loads(PAGE.read_text("utf-8"))["components"]
    listed["components"] += within
    root = listed["metadata"]["component"]["bom-ref"]
    (needs,) = (entry for entry in listed["dependencies"] if entry["ref"] == root)
    needs["dependsOn"] = needs.get("dependsOn", []) + [component["bom-ref"] for component in within]
    listed["dependencies"] += [{"ref": component["bom-ref"]} for component in within]
    return listed


def troubles(*lists: dict[str, Any]) -> list[str]:
    """Where each list breaks the schema; empty where it does not."""
    found: list[str] = json.loads(_tool("python", "-c", _VALIDATE, given=json.dumps(lists)))
    return found


def _tool(*arguments: str | Path, given: str | None = None) -> str:
    command = [uv(), "tool", "run", "-q", "--from", TOOL, *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=without_checkout())
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def main() -> int:
    target = ROOT / "dist" / "sbom"
    target.mkdir(parents=True, exist_ok=True)
    lists: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stepscope-sbom-") as name:
        folder = Path(name)
        wheel = build("wheel", ROOT, folder / "wheel")
        for extra in ("", *project()["optional-dependencies"]):
            environment = Environment.make(folder / (extra or "core"))
            environment.install(f"{wheel}[{extra}]" if extra else wheel)
            listed = components(environment, folder)
            lists.append(listed)
            file = target / f"stepscope{'-' + extra if extra else ''}.cdx.json"
            file.write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
            print(f"{file.relative_to(ROOT)}: {len(listed['components'])} components")
    wrong = "".join(troubles(*lists))
    print(wrong or "all of them are valid")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
