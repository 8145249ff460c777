// Values with their units. tests/report/test_page_format.py compares them with what the command line writes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, count, duration, durations, flops, instant, percent, sentence } from "../../src/format";

test("a duration has one to three digits before the point", () => {
  const written = [[0, "0 ns"], [999, "999 ns"], [1_000, "1.000 µs"], [12_345, "12.35 µs"], [999_999, "1.000 ms"], [1.5e9, "1.500 s"]];
  for (const [ns, text] of written) assert.equal(duration(ns), text);
  assert.equal(duration(null), "–");
});

test("durations of a column share a unit, and none of them reads as zero", () => {
  const far = durations([2_000_000, 40_000, null, 3]);
  assert.deepEqual([2_000_000, 40_000, null, 0, 3].map(far), ["2.000 ms", "0.040 ms", "–", "0 ms", "3 ns"]);
  const mostSmall = durations([2_000_000, 4_000, 3_000]);
  assert.deepEqual([2_000_000, 4_000].map(mostSmall), ["2000 µs", "4.000 µs"]);
  assert.equal(durations([])(1_000), "1.000 µs");
});

test("ticks of an axis have the digits that tell them apart", () => {
  assert.equal(instant(1_250_000, 50_000), "1250 µs");
  assert.equal(instant(1_200_000, 200_000), "1.2 ms");
  assert.equal(instant(2_000, 500), "2.0 µs");
  assert.equal(instant(0, 10 ** 9), "0 s");
});

test("sizes, shares and numbers", () => {
  assert.equal(bytes(1536), "1.500 KiB");
  assert.equal(percent(12.34), "12.3 %");
  assert.equal(flops(3.2e12), "3.200 TFLOP");
  assert.equal(count(1, "match", "matches"), "1 match");
  assert.equal(count(1_200, "op"), "1,200 ops");
});

test("a sentence begins with a capital letter, a kernel's name does not", () => {
  assert.equal(sentence("they take 3 ms"), "They take 3 ms");
  for (const name of ["nvjet_sm90 takes 3 ms", "`gemm` takes 3 ms", "15.3 ms more"]) assert.equal(sentence(name), name);
});
