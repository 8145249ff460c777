"""Plans: figures by hand, and refusals with their numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stepscope.capture import schedule, size
from stepscope.capture.plan import Request, plan
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.model import declared

BIG = 10**12


def lines(capsys) -> list[str]:
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(("pp", "ep", "world", "nodes"), [(2, 2, 4, 1), (2, 8, 16, 2), (4, 8, 32, 4)])
def test_the_trainer_s_meshes(pp, ep, world, nodes):
    made = plan(Request(pp=pp, ep=ep, layers=27, max_size=BIG))
    assert (made.world, made.nodes, made.dp, made.warmup, made.steps) == (world, nodes, 1, 5, 1)
    assert made.ranks == tuple(range(world))


def test_chunks_of_dualpipev():
    # semantics §14: about 59 at p = 2 with 32 micro-batches; 17 on rank 0 of 16
    assert schedule.overlapped_chunks(32, 2, 0) == 59
    assert schedule.overlapped_chunks(32, 16, 0) == 17


@pytest.mark.parametrize("p", [1, 2, 4, 8, 16])
def test_the_median_chunk_is_steady_with_as_few_as_possible(p):
    least = schedule.least_micro_batches("dualpipev", p)
    assert schedule.median_is_steady("dualpipev", least, p)
    assert least == 2 * p or not schedule.median_is_steady("dualpipev", least - 1, p)
    assert schedule.good_micro_batches("dualpipev", p) >= least


def test_32_micro_batches_are_too_few_for_16_stages():
    with pytest.raises(BadInput, match="have 32 micro-batches, need 39"):
        plan(Request(pp=16, ep=2, layers=48, micro_batches=32))
    with pytest.raises(BadInput, match="have 7 micro-batches, need 8: DualPipeV needs 2·pp"):
        plan(Request(pp=4, layers=8, micro_batches=7))


def test_more_gpus_than_there_are(capsys):
    asked = ["capture", "plan", "--pp", "2", "--ep", "8", "--layers", "27", "--gpus", "8"]
    assert run(asked) == 2
    (line,) = lines(capsys)
    assert "have 8 GPUs, need 16" in line
    assert "--pp 2 --ep 4 (8 GPUs)" in line and "2 nodes of 8 GPUs" in line


def test_a_world_that_does_not_divide(capsys):
    assert run(["capture", "plan", "--pp", "2", "--ep", "4", "--layers", "8", "--world", "12"]) == 2
    (line,) = lines(capsys)
    assert "a world of 12 does not divide by pp·cp·ep·tp = 2·1·4·1 = 8" in line and "--world 8 or 16" in line
    with pytest.raises(BadInput, match="a world of 12 does not divide over nodes of 8 GPUs"):
        plan(Request(pp=3, ep=4, layers=8))
    with pytest.raises(BadInput, match="64 experts do not divide over ep = 6"):
        plan(Request(ep=6, model=declared.load("deepseek-v2-lite")))


def test_a_world_sets_dp():
    made = plan(Request(pp=2, ep=2, layers=8, world=16, max_size=BIG))
    assert (made.dp, made.nodes, made.global_batch) == (4, 2, made.micro_batches * 4 * 2)


def test_too_few_layers():
    with pytest.raises(BadInput, match="have 4 layers, need 8"):
        plan(Request(pp=4, layers=4))


def test_size_over_budget_says_what_to_drop_first():
    want = Request(pp=2, ep=2, model=declared.load("qwen3-30b-a3b"), micro_batches=64, steps=3)
    with pytest.raises(BadInput) as refused:
        plan(want)
    text = str(refused.value)
    assert text.index("--steps 1") < text.index("--micro-batches 8") < text.index("--per rank") < text.index("--layers")
    assert plan(replace(want, micro_batches=8, steps=1)).export_bytes < want.max_size


def test_only_one_replica_is_traced_where_all_are_too_large():
    made = plan(Request(pp=2, ep=8, dp=2, layers=24, micro_batches=24, backend="torch", max_size=20_000_000))
    assert made.ranks == (*range(8), *range(16, 24))


def test_the_size_of_a_known_capture(shared):
    """moe4mps: one rank has 3 layers and 8 micro-batches of a tiny model; bytes per event are what is checked."""
    file = shared / "traces" / "h200" / "moe4mps" / "overlapped.sqlite"
    events = 4 * (1019 + 5800 + 411)
    assert 0.5 < file.stat().st_size / size.file_bytes(events, "export") < 2


@pytest.mark.parametrize(("text", "value"), [("200MB", 200_000_000), ("1.5 GiB", 3 * 2**29), ("800k", 800_000)])
def test_sizes(text, value):
    assert size.parse_size(text) == value


def test_models():
    assert {"deepseek-v2-lite", "qwen3-30b-a3b"} <= set(declared.names())
    qwen, deepseek = declared.load("qwen3-30b-a3b"), declared.load("deepseek-v2-lite")
    assert (qwen.layers, qwen.experts, qwen.experts_per_token, qwen.width) == (48, 128, 8, 2048)
    assert (deepseek.layers, deepseek.experts, deepseek.experts_per_token, deepseek.width) == (27, 64, 6, 2048)


def test_a_model_of_one_s_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "stepscope" / "models"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('name = "mine"\nlayers = 6\nwidth = 512\n')
    assert "mine" in declared.names() and declared.load("mine").layers == 6
    (folder / "bad.toml").write_text('name = "bad"\nlayers = "six"\nwidth = 512\n')
    with pytest.raises(BadInput, match="layers = 'six'"):
        declared.load("bad")
    with pytest.raises(BadInput, match="not known; there are"):
        declared.load("nobody")


def test_as_json(capsys):
    assert run(["capture", "plan", "--pp", "2", "--layers", "8", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["summary"]["plan"]["world"] == 2
    assert [r["what"] for r in answer["rows"]][:2] == ["world", "nodes"]


def memory_row(capsys, *words: str) -> dict[str, str]:
    assert run(["capture", "plan", "--format", "json", *words]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    return next((row for row in rows if row["what"] == "memory a rank"), {})


def test_memory_of_a_declared_model(capsys):
    """FSDP over 8: 2 + 2 + 4 bytes a parameter, 2 for the roots of the step, an eighth each; two layers gathered."""
    words = ("--model", "deepseek-v2-lite", "--schedule", "fsdp", "--dp", "8", "--recompute")
    row = memory_row(capsys, *words)
    count = declared.parameters(declared.load("deepseek-v2-lite"))
    least = (10 * count / 8 + 2 * 2 * count / 27) / 2**30
    assert float(row["value"].split()[0]) == pytest.approx(least, rel=0.01)
    assert "optimizer's step" in row["why"]
    more = memory_row(capsys, *words, "--precision", "mixed")
    assert float(more["value"].split()[0]) > float(row["value"].split()[0])


def test_the_preset_s_own_sequence_length(capsys):
    """What `capture run --preset pithtrain` runs: 2048 tokens, unless another length is asked for."""
    words = ("--preset", "pithtrain", "--model", "qwen3-30b-a3b", "--pp", "2", "--ep", "8", "--max-size", "2GB")
    preset = memory_row(capsys, *words)
    assert preset == memory_row(capsys, *words[2:], "--seq", "2048")
    assert preset != memory_row(capsys, *words[2:]) == memory_row(capsys, *words, "--seq", "4096")
    assert run(["capture", "plan", "--preset", "pithtrain", "--model", "qwen3-30b-a3b", "--pp", "2"]) == 2
    assert "no --ep, and it does not guess the mesh" in capsys.readouterr().err


def test_memory_that_cannot_be_estimated_says_why(capsys):
    assert "heads" in memory_row(capsys, "--model", "layers=4,width=64", "--schedule", "ddp")["why"]
    assert memory_row(capsys, "--layers", "4", "--schedule", "ddp") == {}
