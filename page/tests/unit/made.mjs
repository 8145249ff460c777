// A small scene by hand, for the tests of what needs no page.
import { Scene } from "../../src/timeline/scene";

export const KINDS = [
  { colour: "compute", part: null }, { colour: "comm", part: null }, { colour: "range", part: null }, { colour: "call", part: null },
  { colour: "compute", part: "compute" }, { colour: "idle", part: "idle" }, { colour: "hidden", part: null },
];
export const [COMPUTE, COMM, RANGE, CALL, BUSY, IDLE, COUNTER] = KINDS.map((_, i) => i);

const rank = (number, own = "1000", drawn = 0, rate = 1) => ({
  rank: number, host: `node${number >> 1}`, gpu: "GPU", place: `dp ${number}`, own, drawn, rate, windows: [],
});

export const lane = (group, level = 0, more = {}) => ({ rank: 0, group, level, label: `${group} ${level}`, n: 0, ...more });

export function drawing(lanes, more = {}) {
  return { end: 1000, ops: 0, kinds: KINDS, families: ["compute", "communication"], ranks: [rank(0), rank(1)], lanes, steps: [], ...more };
}

/** Marks from rows: start, length, kind, name; columns of one block, as Python sends them. */
export function block(lanes) {
  const all = lanes.flat(), firsts = lanes.map((rows) => rows[0]?.start ?? 0);
  const since = lanes.flatMap((rows) => rows.map(({ start }, i) => start - (rows[i - 1]?.start ?? start)));
  const values = {
    start: since, dur: all.map((m) => m.dur), kind: all.map((m) => m.kind ?? COMPUTE), name: all.map((m) => m.name ?? 0), n: all.map((m) => m.n ?? 1),
    busy: all.map((m) => m.busy ?? 0), row: all.map((m) => m.row ?? 0), range: all.map((m) => m.range ?? 0), stage: all.map((m) => m.stage ?? 0),
    outside: all.map((m) => m.outside ?? 0),
  };
  const bytes = new ArrayBuffer(Object.keys(values).length * all.length * 8 + 8);
  let at = 0;
  const columns = Object.fromEntries(Object.entries(values).map(([name, numbers]) => {
    new Float64Array(bytes, at, numbers.length).set(numbers);
    const place = { type: "f8", at, n: numbers.length };
    at += 8 * numbers.length;
    return [name, place];
  }));
  return { bytes, marks: { rows: lanes.map((rows, i) => [i, rows.length, firsts[i]]), columns } };
}

export function report(lanes, rows, texts, more = {}) {
  const { bytes, marks } = block(rows);
  const data = {
    title: "Timeline", command: "", windows: [], plain: "stepscope timeline t.sqlite", texts, left_out: [], marks,
    drawing: drawing(lanes.map((each, i) => ({ ...each, n: rows[i].length })), more),
  };
  return { data, scene: new Scene([data.drawing]), bytes };
}
