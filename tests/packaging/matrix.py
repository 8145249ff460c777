"""The wheel on every Python that is here, with the oldest and the newest packages it allows, and each extra alone.

    make matrix                                        every Python that uv finds
    make matrix ARGS="--python PATH --oldest"          one of them, with the oldest packages
    make matrix ARGS=--extras                          the extras, each alone
    make matrix ARGS=--quick                           the demo in place of the tests

A cell is an environment with the wheel and all extras, in which the tests of `TESTS` run. Cells replace those of the
same Python in matrix.json; docs/packaging.md gets its tables from there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from distributions import ROOT, Environment, build, project, uv, without_checkout

RESULTS = Path(__file__).with_name("matrix.json")
PAGE = ROOT / "docs" / "packaging.md"
#: Every reader, command, output format and extra is in it; what it leaves out is more of the same: faults, promises,
#: browsers, captures.
TESTS = (
    "tests/intervals",
    "tests/store",
    "tests/sql",
    "tests/sources/ncu",
    "tests/sources/snapshot",
    "tests/sources/nsys/test_nsys_schemas.py",
    "tests/sources/kineto/test_kineto_tables.py",
    "tests/analyses/test_golden.py",
    "tests/api/test_workers.py",
    "tests/cli/test_formats.py",
    "tests/cli/test_writes_nothing.py",
    "tests/agent/test_mcp_answers.py",
    "tests/web/test_serve_answers.py",
)
#: httpx is what the oldest Starlette tests with, httpx2 what the newest does.
RUNNERS = ("pytest>=8", "hypothesis>=6.100", "httpx", "httpx2>=2")
ENDS = {"oldest": "lowest-direct", "newest": "highest"}
#: By extra, a command that needs it, the status it ends with, and what it says.
PROOFS = {
    "web": (["serve", "{job}", "--idle", "0.02"], 0, "nobody asked"),
    "agent": (["mcp", "--root", "{job}"], 0, ""),
    "sql": (["sql", "{job}", "SELECT count(*) FROM ops"], 0, ""),
    "cluster": (["collectives", "{job}", "--cluster", "tcp://127.0.0.1:1"], 2, "no scheduler there"),
    "ncu": (["info", "{report}"], 2, "the report is damaged"),
}
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", action="append", help="an interpreter; may be repeated")
    options.add_argument("--oldest", action="store_true", help="the oldest packages alone")
    options.add_argument("--newest", action="store_true", help="the newest packages alone")
    options.add_argument("--extras", action="store_true", help="the extras alone, and no other cell")
    options.add_argument("--quick", action="store_true", help="the demo in place of the tests")
    given = options.parse_args()
    ends = [end for end in ENDS if getattr(given, end)] or list(ENDS)
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory(prefix="stepscope-matrix-") as folder:
        wheel = build("wheel", ROOT, Path(folder) / "wheel")
        if not given.extras:
            cells = {(c["python"].rpartition(".")[0], c["packages"]): c for c in results.get("cells", [])}
            for python in given.python or interpreters():
                for end in ends:
                    cell = _cell(python, end, wheel, Path(folder), given.quick)
                    cells[cell["python"].rpartition(".")[0], end] = cell
                    print({k: v for k, v in cell.items() if k != "versions"}, flush=True)
                    results["cells"] = sorted(cells.values(), key=lambda c: (_numbers(c["python"]), c["packages"]))
                    _keep(results)  # a later one may take long
        if given.extras or not (given.python or given.oldest or given.newest):
            results |= _extras(wheel, Path(folder))
            _keep(results)
    return int(any(c["failed"] for c in results.get("cells", [])))


def _keep(results: dict[str, Any]) -> None:
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    PAGE.write_text(written(PAGE.read_text("utf-8"), results), "utf-8")


def interpreters() -> list[str]:
    """The newest interpreter here of every version that is supported."""
    command = [uv(), "python", "list", "--only-installed", "--no-python-downloads", "--output-format", "json"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}
    for entry in listed:
        number = _numbers(entry["version"])
        if entry["implementation"] == "cpython" and entry["variant"] == "default" and number[:2] in supported():
            found[number[:2]] = max(found.get(number[:2], ((0,), "")), (number, entry["path"]))
    return [path for _, (_, path) in sorted(found.items())]


def supported() -> list[tuple[int, int]]:
    """The versions of Python that the project's classifiers name."""
    matches = (re.fullmatch(r"Programming Language :: Python :: (\d+)\.(\d+)", c) for c in project()["classifiers"])
    return [(int(m[1]), int(m[2])) for m in matches if m]


def _cell(python: str, end: str, wheel: Path, folder: Path, quick: bool) -> dict[str, Any]:
    began = time.monotonic()
    environment = Environment.make(Path(tempfile.mkdtemp(dir=folder)) / "env", python)
    packages = ["--resolution", ENDS[end], "--only-binary", ":all:", "--all-extras"]
    environment.install("-r", ROOT / "pyproject.toml", options=packages)
    environment.install(wheel, *RUNNERS, options=["--upgrade-package", "stepscope"])
    assert not (trouble := environment.check()), trouble
    number = subprocess.run(
        [environment.python, "-c", "import platform; print(platform.python_version())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    versions = environment.versions()
    return {
        "python": number.stdout.strip(),
        "packages": end,
        **(_demo(environment, folder) if quick else _tests(environment)),
        "seconds": round(time.monotonic() - began),
        "versions": {name: versions[name] for name in sorted(_direct()) if name in versions},
    }


def _tests(environment: Environment) -> dict[str, Any]:
    done = subprocess.run(
        [environment.python, "-m", "pytest", "-p", "no:cacheprovider", "-W", "default", "--tb=line", "-rfs", *TESTS],
        cwd=ROOT, env=without_checkout() | {"PYTEST_ADDOPTS": "-v"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], file=sys.stderr)
    counts = {kind: int(number) for number, kind in _COUNT.findall((done.stdout.splitlines() or [""])[-1])}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return {
        "tests": "core",
        "passed": counts.get("passed", 0),
        "skipped": counts.get("skipped", 0),
        "failed": failed or int(done.returncode != 0),
    }


def _demo(environment: Environment, folder: Path) -> dict[str, Any]:
    """The ten commands of the demo: what they print must be what the first cell's printed."""
    done = environment.run("demo", cwd=folder)
    expected = folder / "demo.txt"
    if not expected.exists():
        expected.write_text(done.stdout, "utf-8")
    same = done.returncode == 0 and done.stdout == expected.read_text("utf-8")
    if not same:
        print(done.stderr, file=sys.stderr)
    return {
        "tests": "demo",
        "passed": done.stdout.count("$ stepscope") if same else 0,
        "skipped": 0,
        "failed": int(not same),
    }


def _extras(wheel: Path, folder: Path) -> dict[str, Any]:
    """Each extra alone: how many packages and megabytes it adds to the core, and that its command finds it."""
    core = Environment.make(folder / "core")
    core.install(wheel)
    job, report = folder / "job", folder / "kernels.ncu-rep"
    mesh = ["--schedule", "ddp", "--pp", "1", "--ep", "1", "--dp", "2", "--nodes", "2", "--layers", "2"]
    core.run("simulate", *mesh, "-o", job, cwd=folder).check_returncode()
    report.write_bytes(b"NVR\0" + bytes(100))
    rows = {"core": _size(core)}
    for extra in project()["optional-dependencies"]:
        environment = Environment.make(folder / extra)
        environment.install(f"{wheel}[{extra}]")
        assert not (trouble := environment.check()), trouble
        rows[extra] = _size(environment)
        for name, (command, status, says) in PROOFS.items():
            if name in (extra, "ncu" if extra == "all" else extra):
                done = environment.run(*(w.format(job=job, report=report) for w in command), cwd=folder)
                assert (done.returncode, says in done.stderr) == (status, True), (extra, done.stderr)
        if extra == "pandas":
            frame = f"import stepscope; print(type(stepscope.open({str(job)!r}).info().to_pandas()))"
            subprocess.run([environment.python, "-c", frame], check=True, capture_output=True, env=without_checkout())
        print(extra, rows[extra], flush=True)
    return {"sizes": rows}


def _size(environment: Environment) -> dict[str, int]:
    """How many packages it holds, and how many bytes they take without what Python compiles of them."""
    files = (p for p in environment.folder.glob("lib/python*/site-packages/**/*") if "__pycache__" not in p.parts)
    return {
        "packages": len(environment.versions()),
        "megabytes": round(sum(p.stat().st_size for p in files if p.is_file()) / 1e6),
    }


def _direct() -> set[str]:
    named = project()["dependencies"] + [r for e in project()["optional-dependencies"].values() for r in e]
    return {match[0] for r in named if (match := _NAME.match(r)) and match[0] != "stepscope"}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def written(page: str, results: dict[str, Any]) -> str:
    """The page with the tables of these results between its marks."""
    for name, lines in (("matrix", _matrix(results)), ("sizes", _sizes(results)), ("bounds", _bounds(results))):
        table = "\n".join(lines)
        page = re.sub(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", rf"\g<1>{table}\n\g<2>", page, flags=re.DOTALL)
    return page


def _matrix(results: dict[str, Any]) -> Iterator[str]:
    yield from ("| Python | packages | tests | passed | skipped | failed |", "|---|---|---|---:|---:|---:|")
    for c in results.get("cells", []):
        yield f"| {c['python']} | {c['packages']} | {c['tests']} | {c['passed']} | {c['skipped']} | {c['failed']} |"


def _sizes(results: dict[str, Any]) -> Iterator[str]:
    yield from ("| install | packages | MB |", "|---|---:|---:|")
    for name, size in results.get("sizes", {}).items():
        what = "`stepscope`" if name == "core" else f"`stepscope[{name}]`"
        yield f"| {what} | {size['packages']} | {size['megabytes']} |"


def _bounds(results: dict[str, Any]) -> Iterator[str]:
    yield from ("| package | oldest tried | newest tried |", "|---|---|---|")
    for name in sorted(_direct()):
        tried = [c["versions"][name] for c in results.get("cells", []) if name in c["versions"]]
        if tried:
            yield f"| {name} | {min(tried, key=_numbers)} | {max(tried, key=_numbers)} |"


if __name__ == "__main__":
    os.environ.setdefault("UV_NO_PROGRESS", "1")
    sys.exit(main())
