"""The command: how sides are given and understood, what differs between them, and what is said to misuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pairs import scenario
from stepscope import api
from stepscope.capture import manifest
from stepscope.cli.commands._compare_options import _spread
from stepscope.cli.main import run
from stepscope.compare.columns import VARIANTS
from stepscope.compare.facts import differences
from stepscope.compare.gate import Row as GateRow
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.result import names
from stepscope.simulate.run import simulate_to


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sides")
    for i in range(3):
        simulate_to(scenario(i, steps=6, dp=2), folder / f"a{i}", ("kineto",))
        simulate_to(scenario(10 + i, steps=6, dp=2, faults=("dataloader:stall_ms=1",)), folder / f"b{i}", ("kineto",))
    simulate_to(scenario(1, steps=6, dp=2, seq=8192, mbs=2), folder / "shape", ("nsys",))
    simulate_to(scenario(1, steps=6, dp=4), folder / "wide", ("nsys",))
    simulate_to(scenario(1, steps=6, dp=2), folder / "nsys", ("nsys",))
    return folder


def test_to_takes_all_that_follows():
    assert _spread(["a", "b", "--to", "c", "d", "--by", "stage"]) == [*"ab", "--to", "c", "--to", "d", "--by", "stage"]
    assert _spread(["--by", "stage", "a", "--to=c", "d"]) == ["--by", "stage", "a", "--to=c", "--to", "d"]
    assert _spread(["a", "--to", "b", "--", "c"]) == ["a", "--to", "b", "--", "c"]


def ask(capfd, *arguments: str | Path) -> dict:
    assert run(["compare", *map(str, arguments), "--format", "json"]) == 0
    return json.loads(capfd.readouterr().out)


@pytest.mark.slow
def test_repeated_runs_are_the_unit(traces, capfd):
    base, new = (sorted(traces.glob(f"{side}?")) for side in "ab")
    answer = ask(capfd, *base, "--to", *new)
    assert answer["summary"]["step"]["base_n"] == 3
    assert answer["summary"]["step"]["samples"] == "runs"
    assert answer["summary"]["verdict"] == "slower"
    assert "base: 3 runs, one per folder" in answer["notes"]
    assert {(w["side"], w["run"], w["rank"]) for w in answer["window"]} == {
        (side, k, r) for side in ("base", "new") for k in range(3) for r in range(2)
    }
    globbed = ask(capfd, *sorted(traces.glob("a?/*.gz")), "--to", *sorted(traces.glob("b?/*.gz")))
    assert globbed["rows"] == answer["rows"]


@pytest.mark.slow
def test_one_new_run_against_several(traces, capfd):
    answer = ask(capfd, *sorted(traces.glob("a?")), "--to", traces / "b0")
    assert (answer["summary"]["step"]["base_n"], answer["summary"]["step"]["new_n"]) == (3, 1)
    assert answer["summary"]["verdict"] == "slower"


def test_several_profiles_in_python(traces):
    base, new = ([api.open(f) for f in sorted(traces.glob(f"{side}?"))] for side in "ab")
    assert api.compare(base, new).summary["step"]["new_n"] == 3
    one = base[0].compare(new[0], by="rank")
    assert one.rows["rank"].to_list() == [0, 1]
    assert base[0].compare(traces / "b0", rank="1", by="rank").rows["rank"].to_list() == [1]


def test_what_differs_is_named_and_two_things_are_a_warning(traces, capfd):
    answer = ask(capfd, traces / "nsys", "--to", traces / "shape")
    assert [d["what"] for d in answer["summary"]["differs"]] == ["setup mbs", "setup seq"]
    assert any("cannot be attributed to one of them" in note for note in answer["notes"])
    assert "2 things changed besides: setup mbs, setup seq" in answer["summary"]["statement"]
    wide = ask(capfd, traces / "nsys", "--to", traces / "wide", "--by", "rank")
    assert {"world", "mesh"} <= {d["what"] for d in wide["summary"]["differs"]}
    assert wide["summary"]["statement"].endswith("mesh changed from pp=1 dp=2 cp=1 ep=1 to pp=1 dp=4 cp=1 ep=1")
    assert any("the base has 2 ranks, the new side 4" in note for note in wide["notes"])


def test_the_manifest_beside_a_capture_counts(traces, tmp_path, capfd):
    for name, algorithm, commit in (("x", "Ring", "1"), ("y", "Tree", "2")):
        shutil.copytree(traces / "nsys", tmp_path / name)
        scenario = {"environment": {"NCCL_ALGO": algorithm}, "git": {"commit": commit}, "steps": len(name)}
        manifest.write(tmp_path / name, {"scenario": scenario, "captured": {}})
    differs = ask(capfd, tmp_path / "x", "--to", tmp_path / "y")["summary"]["differs"]
    assert {"what": "environment.NCCL_ALGO", "base": "Ring", "new": "Tree"} in differs
    assert {"what": "git.commit", "base": "1", "new": "2"} in differs
    statement = ask(capfd, tmp_path / "x", "--to", tmp_path / "y")["summary"]["statement"]
    assert statement.endswith("environment.NCCL_ALGO changed from Ring to Tree")  # another commit is what one compares


@pytest.mark.slow
def test_the_statement_is_the_last_line_and_all_fits(traces, capfd):
    for by in ("part", "stage", "rank", "family", "kernel"):
        assert run(["compare", str(traces / "a0"), "--to", str(traces / "b0"), "--by", by]) == 0
        out = capfd.readouterr().out
        assert max(map(len, out.splitlines())) <= 100
        last = " ".join(out.rpartition("\n\n")[2].split())
        assert last.startswith("the step is ") and last.endswith("NVIDIA H200")


def test_markdown_ends_with_the_statement(traces, capfd):
    assert run(["compare", str(traces / "a0"), "--to", str(traces / "b0"), "--format", "md"]) == 0
    assert capfd.readouterr().out.rstrip().splitlines()[-1].startswith("**the step is ")


def test_the_gate_of_compare(traces, capfd):
    assert run(["compare", str(traces / "a0"), "--to", str(traces / "b0"), "--gate"]) == 1
    out, err = capfd.readouterr()
    assert "slower" in out and err.startswith("stepscope: the gate failed: step: +")


def test_one_step_on_a_side_is_measured_by_its_own_ops_on_both(traces, tmp_path, capfd):
    simulate_to(scenario(1, steps=1, dp=2), tmp_path)
    answer = ask(capfd, traces / "a0", "--to", tmp_path / "node0.sqlite", "--anchor", "^step")
    assert answer["summary"]["step"]["new_n"] == 1
    assert not [d for d in answer["summary"].get("differs", []) if d["what"] == "window"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 2, "nothing to compare with"),
        (["{a}"], 2, "name the new run after --to"),
        (["before", "after"], 2, "compare before --to after"),
        (["--to", "{a}"], 2, "name the base before it"),
        (["{a}", "--to"], 2, "--to names no profile"),
        (["{a}", "--to", "--by", "stage"], 2, "--to names no profile"),
        (["{a}", "--to", "nowhere"], 2, "nowhere: no such file"),
        (["nowhere", "--to", "{a}"], 2, "nowhere: no such file"),
        (["{a}", "--to", "{a}", "--by", "colour"], 2, "is not one of"),
        (["{a}", "--to", "{a}", "--margin", "0"], 2, "not a share"),
        (["{a}", "--to", "{a}", "--warmup", "-1"], 2, "negative"),
        (["{a}", "--to", "{a}", "--whole", "--anchor", "x"], 2, "--whole excludes"),
        (["{a}", "--to", "{a}", "--anchor", "["], 2, "--anchor '['"),
        (["{a}", "--to", "{a}", "--by", "kernel", "--top", "-1"], 2, "--top -1"),
        (["{a}", "--to", "{a}", "--rank", "7"], 2, "no rank 7"),
        (["{a}", "--to", "{a}", "--anchor", "nothing like it"], 3, "no range with GPU work matches"),
        (["{a}", "--to", "{a}", "--warmup", "99"], 3, "--warmup 99 leaves no step"),
        (["{a}", "{a}/rank0.pt.trace.json.gz", "--to", "{a}"], 2, "given twice"),
    ],
)
def test_misuse_is_one_line(traces, capfd, arguments, status, says):
    assert run(["compare", *(a.format(a=traces / "a0") for a in arguments)]) == status
    out, err = capfd.readouterr()
    assert out == "" and says in err and len(err.splitlines()) == 1


def test_nothing_is_no_side(traces):
    with pytest.raises(BadInput, match="nothing to compare"):
        api.compare([], traces / "a0")


def test_sides_with_and_without_steps_are_not_compared(shared, traces):
    whole = shared / "traces" / "public" / "h100x2_before.sqlite"
    with pytest.raises(CannotAnswer, match="base has no steps, new has steps: not the same window"):
        api.compare(whole, traces / "a0")
    assert api.compare(whole, traces / "a0", whole=True).summary["verdict"] == "cannot tell"


def test_stages_of_one_side_only(shared, traces):
    with pytest.raises(CannotAnswer, match="new has no stage labels, but the other side does"):
        api.compare(shared / "traces/h200/moe4mps/overlapped.sqlite", traces / "a0", by="stage", whole=True)


def test_chosen_ranks_are_still_of_the_whole_job(traces, capfd):
    answer = ask(capfd, traces / "nsys", "--to", traces / "a0", "--rank", "1", "--by", "rank")
    assert [r["rank"] for r in answer["rows"]] == [1]
    assert [d["what"] for d in answer["summary"]["differs"]] == ["format"]


def test_command_lines_differ_in_options_not_in_words():
    both = [
        {"scenario": {"command": ["train.py", "--seq", seq, *more]}} for seq, more in (("1", []), ("2", ["--fast"]))
    ]
    assert [(d.base, d.new) for d in differences({}, {}, (both[0], both[1]))] == [("--seq 1", "--seq 2 --fast")]


def test_ranks_that_one_side_lacks_are_left_out(traces, tmp_path, capfd):
    shutil.copy(traces / "a1" / "rank1.pt.trace.json.gz", tmp_path)
    answer = ask(capfd, traces / "a0", "--to", tmp_path)
    assert {w["rank"] for w in answer["window"]} == {1}
    assert any("both sides have steps on rank 1 alone" in note for note in answer["notes"])


def test_the_guide_has_every_column():
    guide = (Path(__file__).parents[2] / "docs" / "compare.md").read_text("utf-8")
    columns = {name for row in (*VARIANTS.values(), GateRow) for name in names(row)}
    assert {c for c in columns if f"`{c}`" not in guide} == set()


def test_inputs_are_never_written_over(traces, tmp_path, capfd):
    folder = tmp_path / "run"
    shutil.copytree(traces / "nsys", folder)
    file = folder / "node0.sqlite"
    before = file.read_bytes()
    both = [str(folder), "--to", str(traces / "a0")]
    for command in (
        ["compare", *both, "-o", str(file), "--format", "json"],
        ["compare", str(traces / "a0"), "--to", str(folder), "-o", str(file), "--format", "json"],
        ["gate", *both, "--markdown", str(file)],
        ["gate", *both, "--junit", str(file)],
        ["gate", str(folder), "--save", str(file)],
    ):
        assert run(command) == 2
        assert "is one of the inputs" in capfd.readouterr().err
    assert file.read_bytes() == before


def test_a_baseline_is_the_base(traces, tmp_path, capfd):
    path = api.save_baseline(traces / "a0", str(tmp_path / "b.json"))
    assert run(["compare", str(traces / "a0"), "--to", str(path)]) == 2
    assert "a baseline can only be the base" in capfd.readouterr().err
