"""Anonymized exports: no word of the user's is in them, and all figures are as they were."""

from __future__ import annotations

import gzip
import re

import polars as pl
import pytest

from exports import h200, job
from fake import call, make, nvtx, op
from stepscope import api, questions
from stepscope.errors import StepscopeError
from stepscope.export.anonymize import Pseudonyms
from stepscope.export.write import Order, export
from stepscope.model import taxonomy

_WORDS = Pseudonyms(taxonomy.default())


def test_words_of_the_field_stay_and_others_go():
    assert _WORDS.of("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)").startswith("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert _WORDS.of("aten::scaled_dot_product_attention") == "aten::scaled_dot_product_attention"
    assert _WORDS.of("stage2_f") == "stage2_f" and _WORDS.of("forward chunk 4 (phase0)") == "forward chunk 4 (phase0)"
    assert _WORDS.of("rank=3; pp=0/2 ep=1/4; mbs=1 seq=4096") == "rank=3; pp=0/2 ep=1/4; mbs=1 seq=4096"
    secret = _WORDS.of("/home/alice/acme/unicorn_attention.py(12): UnicornAttention.forward")
    assert not re.search("alice|acme|unicorn", secret, re.IGNORECASE)
    assert secret.endswith("ttention.forward") and ".py(12): " in secret
    assert _WORDS.of("unicorn") in secret and _WORDS.of("Unicorn_42") == _WORDS.of("unicorn") + "_42"


def test_a_profile_without_names_has_none_to_change():
    changed, kept = _WORDS.names(pl.Series("name", [], dtype=pl.String))
    assert len(changed) == kept == 0


def test_nothing_of_the_user_is_in_the_file(tmp_path):
    profile = make(
        ops=[op(10, 20, "void unicorn_gemm<acme::Zebra>(float*)", call=1), op(30, 40, "nvjet_unicorn", call=2)],
        calls=[call(1, 2, 1), call(3, 4, 2)],
        ranges=[nvtx(0, 50, "step 0"), nvtx(0, 9, "zebra layer 3")],
        processes=[{"proc": 0, "pid": 7, "device": 0, "host": "acme-node-17.example.org", "rank": 0}],
    )
    for ending, form in ((".pftrace", "perfetto"), (".json", "chrome")):
        path = tmp_path / f"out{ending}"
        export(profile, path, form, Order(anonymize=True))
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert not re.search(rb"unicorn|acme|zebra|example", text, re.IGNORECASE)
        assert b"gemm" in text and b"step 0" in text and b"nvjet" in text


def _figures(profile: api.Profile) -> dict[str, object]:
    """Numbers of all answers; names may sort in another order."""
    found: dict[str, object] = {}
    for name in questions.names():
        if name == "info":
            continue
        try:
            rows = api.analyse(profile, name).rows
        except StepscopeError as reason:
            found[name] = type(reason).__name__
            continue
        numbers = [c for c, dtype in rows.schema.items() if dtype.is_numeric()]
        found[name] = sorted(map(str, rows.select(numbers).rows()))
    return found


@pytest.mark.slow
def test_figures_of_a_real_capture_stay(tmp_path):
    profile = api.open(h200("payloads", tmp_path), cache=False)
    profile.export(tmp_path / "out.pftrace", anonymize=True)
    assert _figures(profile) == _figures(api.open(tmp_path / "out.pftrace", cache=False))


@pytest.mark.slow
def test_figures_and_findings_of_a_job_stay(tmp_path):
    profile = api.open(job(tmp_path / "job"), cache=False)
    profile.export(tmp_path / "out.pftrace", anonymize=True)
    again = api.open(tmp_path / "out.pftrace", cache=False)
    assert _figures(profile) == _figures(again)
    assert profile.diagnose().rows["id"].equals(again.diagnose().rows["id"])


def test_kernels_keep_their_families(tmp_path):
    profile = api.open(h200("payloads", tmp_path), cache=False)
    used = profile.ops["name"].unique().sort()
    names = profile.names.gather(used)
    changed, kept = _WORDS.names(names)
    rules = profile.taxonomy
    assert rules.family(names).equals(rules.family(changed)) and kept <= len(names) // 10
    assert pl.Series(rules.is_comm(names)).equals(rules.is_comm(changed))
