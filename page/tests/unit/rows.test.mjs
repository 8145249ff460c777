// Which lane lies where, and what is open and shown at first.
import assert from "node:assert/strict";
import { test } from "node:test";
import { firstOpen, layout } from "../../src/timeline/rows";
import { closedAtFirst, keyOf, sampled, Scene, stepAt } from "../../src/timeline/scene";
import { drawing, lane } from "./made.mjs";

const scene = new Scene([drawing([lane("parts"), lane("ranges"), lane("streams", 7), lane("counters"), lane("host", 5), lane("streams", 7, { rank: 1 })])]);

test("rows lie below each other, without a gap within a rank", () => {
  const { rows, height } = layout(scene.ranks, new Set([0, 1]), new Set(["host"]));
  assert.deepEqual(rows.map((row) => row.lane?.about.group ?? "head"), ["head", "ranges", "streams", "counters", "head", "streams"]);
  rows.slice(1).forEach((row, i) => {
    const { top, height: tall } = rows[i];
    assert.equal(row.top, top + tall + (row.lane ? 0 : 6));
  });
  assert.equal(rows.at(-1).top + rows.at(-1).height + 6, height);
  assert.ok(scene.ranks[0].parts && !scene.ranks[0].lanes.includes(scene.ranks[0].parts));
});

test("a folded rank is its head", () => {
  assert.equal(layout(scene.ranks, new Set([1]), new Set()).rows.filter(({ rank }) => rank.rank === 0).length, 1);
});

test("of many ranks some are open at first", () => {
  const many = new Scene([drawing(
    Array.from({ length: 512 }, (_, i) => lane("streams", i % 4, { rank: i >> 2 })),
    { ranks: Array.from({ length: 128 }, (_, rank) => ({ rank, host: null, gpu: null, place: "", own: "0", drawn: 0, rate: 1, windows: [] })) },
  )]);
  const open = firstOpen(many);
  assert.ok(open.size > 1 && open.size < 128 && open.has(0));
  assert.deepEqual([...closedAtFirst(many)], ["host"]);
});

test("few functions are shown at once, many when they are asked for, and what an address hides stays hidden", () => {
  const of = (n) => new Scene([drawing(Array.from({ length: n }, (_, i) => lane("functions", i)))]);
  assert.deepEqual([...closedAtFirst(of(10))], []);
  assert.deepEqual([...closedAtFirst(of(11))], ["functions"]);
  assert.deepEqual([...closedAtFirst(of(11), ["host", "nonsense"])], ["host"]);
});

test("two profiles have ranks of their own, and one of them moves", () => {
  const both = new Scene([drawing([lane("streams")]), drawing([lane("streams")])]);
  assert.deepEqual(both.ranks.map(({ key, title }) => [key, title]), [
    [0, "A rank 0"], [1, "A rank 1"], [keyOf(1, 0), "B rank 0"], [keyOf(1, 1), "B rank 1"],
  ]);
  both.lanes[1][0].loaded = {};
  both.align(1, 50);
  assert.deepEqual([both.shift, both.lanes[1][0].loaded], [[0, 50], null]);
});

test("the step that is looked at", () => {
  const steps = [{ label: "a", start: 0, end: 100 }, { label: "b", start: 100, end: 220 }];
  const seen = [[10, 90], [120, 200], [0, 220], [300, 310]].map(([from, to]) => stepAt(steps, from, to));
  assert.deepEqual(seen, [0, 1, -1, -1]);
});

test("a counter's values have its unit", () => {
  assert.equal(sampled({ most: 98.5, unit: "%" }, 65_535), "98.5 %");
  assert.equal(sampled({ most: 2 ** 30, unit: "bytes" }, 65_535), "1.000 GiB");
  assert.equal(sampled({ most: 4 }, 32_768), "2");
});
