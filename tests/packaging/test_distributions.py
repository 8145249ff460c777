"""The wheel and the sdist hold what they must and nothing else, and are the same bytes wherever they are built."""

from __future__ import annotations

import os
import platform
import shutil
import tarfile
import zipfile
from pathlib import Path

from distributions import ROOT, build, project

#: Files that are read by the installed package, beside its code.
NEEDED = {
    "stepscope/py.typed",
    "stepscope/api/methods.pyi",
    "stepscope/render/html/bundle/report.js",
    "stepscope/render/html/bundle/report.css",
    "stepscope/render/html/bundle/serve.js",
    "stepscope/render/html/bundle/serve.css",
    "stepscope/skills/analyze-profile/SKILL.md",
    "stepscope/model/presets/qwen3-30b-a3b.toml",
    "stepscope/model/gpus.toml",
    "stepscope/model/trainers/default.toml",
    "stepscope/findings/calibration.toml",
}
KINDS = {".py", ".pyi", ".json", ".toml", ".md", ".txt", ".js", ".css", ".csv", ".typed"}


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "stepscope").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    about = f"stepscope-{project()['version']}.dist-info"
    licences = {f"licenses/{name}" for name in project()["license-files"]}
    sboms = {name for name in names if name.startswith(f"{about}/sboms/")}  # of the page: PEP 770
    assert package >= NEEDED
    told = {f"{about}/{n}" for n in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", *licences)}
    assert [Path(name).name for name in sboms] == ["components.cdx.json"]
    assert names == package | told | sboms
    assert {Path(name).suffix or Path(name).name for name in package} <= KINDS | {"py.typed"}


def test_nothing_names_the_machine_that_built_it(wheel, tmp_path):
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    with zipfile.ZipFile(wheel) as packed, tarfile.open(sdist) as source:
        texts = {name: packed.read(name) for name in packed.namelist()}
        texts |= {m.name: source.extractfile(m).read() for m in source.getmembers() if m.isfile()}
        assert {(m.uid, m.gid, m.uname, m.gname) for m in source.getmembers()} == {(0, 0, "", "")}
    words = {str(ROOT), f"{Path.home()}/", *([platform.node()] if len(platform.node()) > 6 else [])}
    assert [(name, word) for name, text in texts.items() for word in words if word.encode() in text] == []


def test_built_elsewhere_at_another_time_it_is_the_same_bytes(wheel, tmp_path):
    copy = tmp_path / "another place"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    again = build("wheel", copy, tmp_path / "again", TZ="Asia/Kathmandu", LC_ALL="C", PYTHONHASHSEED="7")
    assert again.read_bytes() == wheel.read_bytes()
    dated = build("wheel", copy, tmp_path / "dated", SOURCE_DATE_EPOCH="1700000000")
    assert {entry.date_time[0] for entry in zipfile.ZipFile(dated).infolist()} == {2023}


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_checkout(wheel, tmp_path):
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    assert sdist.stat().st_size < 4_000_000
    with tarfile.open(sdist) as source:
        source.extractall(tmp_path, filter="data")
    folder = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert {p.name for p in folder.iterdir()} >= {"page", "SECURITY.md", "CHANGELOG.md"}
    assert not list(folder.rglob("test_*.py"))
    assert not list(folder.rglob("node_modules"))
    assert build("wheel", folder, tmp_path / "made").read_bytes() == wheel.read_bytes()
