// Which ranks are shown, and in which order.
import assert from "node:assert/strict";
import { test } from "node:test";
import { arranged } from "../../src/timeline/ranks";

const rank = (key, subtitle = "") => ({ key, rank: key % 100, title: `rank ${key % 100}`, subtitle });
const ranks = [rank(0, "pp 0 dp 0"), rank(1, "pp 0 dp 1"), rank(2, "pp 1 dp 0"), rank(3, "pp 1 dp 1"), rank(10), rank(102)];
const keys = ({ pinned = [], filter = "", sort = "rank", late = {}, hosts = new Map() }) =>
  arranged(ranks, new Set(pinned), filter, sort, late, hosts).map(({ key }) => key);

test("numbers, ranges of them, and parts of names choose ranks", () => {
  assert.deepEqual(keys({ filter: "1, 3" }), [1, 3]);
  assert.deepEqual(keys({ filter: "1-2" }), [1, 2, 102]);
  assert.deepEqual(keys({ filter: "PP 1" }), [2, 3]);
  assert.deepEqual(keys({ filter: "nowhere" }), []);
});

test("ranks of two profiles lie beside each other", () => {
  assert.deepEqual(keys({}), [0, 1, 2, 102, 3, 10]);
});

test("the culprit is first, and what is pinned before it, whatever the filter", () => {
  const late = { 3: 900, 1: 100 };
  assert.deepEqual(keys({ sort: "culprit", late }), [3, 1, 0, 2, 102, 10]);
  assert.deepEqual(keys({ sort: "culprit", late, pinned: [2], filter: "0-1" }), [2, 1, 0]);
});

test("by host, then by number", () => {
  const hosts = new Map([[0, "b"], [1, "a"], [2, "b"], [3, "a"], [10, "c"], [102, "c"]]);
  assert.deepEqual(keys({ sort: "host", hosts }), [1, 3, 0, 2, 102, 10]);
});
