// Marks of a lane: read from columns, found by time. Against looking at every one of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bound, longestOf, markAt, marksOf, reaching } from "../../src/timeline/marks";
import { block } from "./made.mjs";

const laneOf = (rows) => {
  const { bytes, marks: about } = block([rows]);
  const [[, marks]] = marksOf(about, bytes);
  return { marks, longest: longestOf(marks) };
};

/** The same numbers every time. */
function* chance(seed) {
  for (let x = seed; ; ) {
    x = (x * 1103515245 + 12345) % 2147483648;
    yield x / 2147483648;
  }
}

test("lanes of a block lie one after the other, on the axis of their profile", () => {
  const { bytes, marks } = block([[{ start: 5, dur: 2 }, { start: 9, dur: 1 }], [], [{ start: -3, dur: 10, name: 4, busy: 7 }]]);
  const lanes = marksOf(marks, bytes, 0, 100);
  assert.deepEqual(lanes.map(([id, { start }]) => [id, [...start]]), [[0, [105, 109]], [1, []], [2, [97]]]);
  assert.deepEqual([lanes[2][1].name[0], lanes[2][1].busy[0], lanes[0][1].dur[1]], [4, 7, 1]);
});

test("what can be seen is never left out, and what lies under the pointer is the innermost", () => {
  const next = chance(7), draw = (most) => Math.floor(next.next().value * most);
  for (let round = 0; round < 300; round++) {
    const rows = Array.from({ length: 1 + draw(30) }, () => ({ start: draw(100), dur: draw(40) })).sort((a, b) => a.start - b.start);
    const lane = laneOf(rows), time = draw(140), slack = draw(4);
    const first = reaching(lane, time), last = bound(lane, time);
    rows.forEach(({ start, dur }, i) => {
      if (start < time && start + dur >= time) assert.ok(first <= i && i < last);
    });
    const off = ({ start, dur }) => Math.max(start - time, time - start - dur, 0);
    const reached = rows.map((row, i) => [off(row), i]).filter(([far, i]) => far <= slack && rows[i].start < time + slack);
    const nearest = Math.min(...reached.map(([far]) => far));
    const expected = reached.filter(([far]) => far === nearest).at(-1)?.[1] ?? -1;
    assert.equal(markAt(lane, time, slack), expected);
  }
});
