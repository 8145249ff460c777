"""The wheel and the sdist, installed into environments that were empty, answer from there."""

from __future__ import annotations

import json
import subprocess

import pytest
from distributions import ROOT, Environment, build, project, without_checkout

#: What each extra is for: a command that says in one line that it lacks it. `{job}` is a folder of traces.
LACKING = {
    "web": ["serve", "{job}"],
    "agent": ["mcp", "--root", "{job}"],
    "sql": ["sql", "{job}", "SELECT count(*) FROM ops"],
    "cluster": ["collectives", "{job}", "--cluster", "tcp://127.0.0.1:1"],
    "ncu": ["info", "{report}"],
}


@pytest.mark.slow
def test_the_wheel_answers_from_its_own_environment(core, job, tmp_path):
    assert core.check() == ""
    said = core.run("--version", cwd=tmp_path)
    assert (said.returncode, said.stdout.split()[-1]) == (0, project()["version"])
    where = subprocess.run(
        [core.python, "-c", "import stepscope; print(stepscope.__file__)"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=without_checkout(),
    )  # fmt: skip
    assert where.stdout.startswith(str(core.folder))
    report = core.run("report", job, "-o", tmp_path / "page.html", cwd=tmp_path)
    assert not report.returncode, report.stderr
    script = (ROOT / "src/stepscope/render/html/bundle/report.js").read_text("utf-8")
    assert script[:200] in (tmp_path / "page.html").read_text("utf-8")
    assert "analyze-profile" in core.run("skill", "list", cwd=tmp_path).stdout


@pytest.mark.slow
def test_the_sdist_installs_as_the_wheel_does(core, job, tmp_path):
    environment = Environment.make(tmp_path / "env")
    environment.install(build("sdist", ROOT, tmp_path / "sdist"))
    assert environment.check() == ""
    of_wheel, of_sdist = (e.run("breakdown", job, "--format", "json", cwd=tmp_path) for e in (core, environment))
    assert of_sdist.returncode == 0, of_sdist.stderr
    assert json.loads(of_sdist.stdout)["rows"] == json.loads(of_wheel.stdout)["rows"]


@pytest.mark.slow
def test_the_oldest_that_is_allowed_will_do(core, wheel, job, tmp_path):
    """`make matrix` runs the tests with the oldest of everything; this sees a bound that fell behind the code."""
    oldest = Environment.make(tmp_path / "env")
    oldest.install("-r", ROOT / "pyproject.toml", options=["--resolution", "lowest-direct", "--only-binary", ":all:"])
    oldest.install(wheel, options=["--no-deps"])
    assert oldest.check() == ""
    for question in ("diagnose", "timeline"):
        old, new = (e.run(question, job, "--format", "json", cwd=tmp_path) for e in (oldest, core))
        assert old.returncode == 0, old.stderr
        assert json.loads(old.stdout)["rows"] == json.loads(new.stdout)["rows"]


@pytest.mark.slow
def test_without_an_extra_one_line_names_it(core, job, tmp_path):
    report = tmp_path / "kernels.ncu-rep"
    report.write_bytes(b"NVR\0" + bytes(100))
    for extra, command in LACKING.items():
        done = core.run(*(word.format(job=job, report=report) for word in command), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), (extra, done.stderr)
        assert done.stderr.count("\n") == 1
        assert f"pip install 'stepscope[{extra}]" in done.stderr
    frame = f"import stepscope; stepscope.open({str(job)!r}).info().to_pandas()"
    done = subprocess.run([core.python, "-c", frame], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr.splitlines()[-1].partition("pip install ")[2].startswith("'stepscope[pandas]")


def test_every_extra_is_asked_for_somewhere():
    assert {*LACKING, "pandas", "all"} == set(project()["optional-dependencies"])


@pytest.mark.slow
def test_the_core_stays_light(core):
    """Seven packages that are named and what they need: docs/packaging.md says how many and how large."""
    installed = core.versions()
    assert {"stepscope", "polars", "numpy"} <= set(installed)
    assert len(project()["dependencies"]) <= 7
    assert len(installed) <= 16, sorted(installed)
