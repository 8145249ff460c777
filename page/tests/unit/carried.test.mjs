// What a report answers of the marks that it has with it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Carried } from "../../src/timeline/carried";
import { BUSY, COMM, IDLE, lane, RANGE, report } from "./made.mjs";

const TEXTS = [[""], ["gemm", "void gemm<float>(int)"], ["ncclDevKernel_AllReduce"], ["step 1"], ["(no stage)"]];
const LANES = [lane("parts", 0, { label: "" }), lane("ranges"), lane("streams", 7), lane("host", 5), lane("parts", 0, { rank: 1, label: "" })];
const ROWS = [
  [{ start: 0, dur: 60, kind: BUSY }, { start: 60, dur: 40, kind: IDLE }],
  [{ start: 0, dur: 100, kind: RANGE, name: 3 }],
  [
    { start: 0, dur: 10, name: 1, range: 3, stage: 4 }, { start: 20, dur: 0, name: 2, kind: COMM, outside: 1 },
    { start: 30, dur: 20, name: 1, busy: 128, n: 9 }, { start: 50, dur: 10, name: 1 },
  ],
  [{ start: 0, dur: 5, name: 1 }],
  [{ start: 10, dur: 90, kind: BUSY }],
];
const made = () => {
  const { data, scene, bytes } = report(LANES, ROWS, TEXTS);
  return { scene, source: new Carried(scene, data, bytes) };
};

test("a search counts what is drawn itself: ops and ranges, but not what is merged, nor the host", async () => {
  const { source } = made();
  const [gemm] = await source.search("GEMM");
  assert.deepEqual([gemm.count, gemm.ops, gemm.total_ns], [2, 2, 20]);
  assert.deepEqual(gemm.names, [{ name: "void gemm<float>(int)", n: 2, total_ns: 20, longest_ns: 10 }]);
  const [both] = await source.search("/step|nccl/");
  assert.deepEqual([both.count, both.ops, both.total_ns], [2, 1, 0]);
  assert.ok((await source.search("/[/"))[0].error.includes("regular expression"));
  assert.equal((await source.search("nothing is called so"))[0].count, 0);
});

test("matches follow each other by time, and round again", async () => {
  const { source } = made();
  const starts = async (...wheres) => Promise.all(wheres.map(async (where) => (await source.match(0, "gemm", where)).start));
  assert.deepEqual(await starts({ k: 0 }, { k: 1 }, { k: 2 }, { k: -1 }), [0, 50, 0, 50]);
  assert.deepEqual(await starts({ at: 1 }, { at: 50 }, { at: 51 }), [50, 50, 0]);
});

test("marks say whether they are searched for, until nothing is", () => {
  const { scene, source } = made();
  let drawn = 0;
  source.heard = { arrived: () => { drawn += 1; }, failed: assert.fail };
  const show = (search) => source.show({ from: 0, to: 1, rows: [], pixels: 1, search });
  show("gemm");
  show("gemm");
  assert.deepEqual([[...scene.lanes[0][2].marks.match], drawn], [[1, 0, 0, 1], 1]);
  show("");
  assert.deepEqual([scene.lanes[0][2].marks.match.length, drawn], [0, 2]);
});

test("details of an op have its names, and the command on the rank's own clock", async () => {
  const { source } = made();
  const op = await source.details(0, 2, 0);
  assert.equal(op.name, "void gemm<float>(int)");
  assert.deepEqual(op.facts.slice(2), [["range", "step 1", "text"]]);
  assert.equal(op.command, "stepscope timeline t.sqlite --rank 0 --start @1000 --end @1010");
  const without = await source.details(0, 2, 1);
  assert.deepEqual(without.facts.at(-1), ["note", "launched outside the window", "text"]);
  assert.ok(without.command.endsWith("--start @1020 --end @1021"), "a command needs a nanosecond at least");
  assert.equal((await source.details(0, 0, 1)).name, "idle");
});

test("own times have more digits than a double, and clocks that drift", async () => {
  const { data, scene, bytes } = report(LANES, ROWS, TEXTS, {
    ranks: [0, 1].map((rank) => ({ rank, host: null, gpu: null, place: "", own: "1760000000000000123", drawn: 0, rate: 1.5, windows: [] })),
  });
  const { command } = await new Carried(scene, data, bytes).details(0, 2, 0);
  assert.ok(command.endsWith("--start @1760000000000000123 --end @1760000000000000138"), command);
});

test("a span is cut to the window of each rank, and its parts sum to it", async () => {
  const { source } = made();
  const { sum, ranks, commands, notes } = await source.span(0, [0, 1], 5, 70);
  assert.deepEqual(sum, { window_ns: 65 + 60, compute_ns: 55 + 60, comm_exposed_ns: 0, copy_exposed_ns: 0, idle_ns: 10, comm_hidden_ns: null });
  assert.deepEqual([ranks, notes], [[{ rank: 0 }, { rank: 1 }], []]);
  assert.deepEqual(commands, [
    "stepscope breakdown t.sqlite --rank 0 --start @1005 --end @1070", "stepscope breakdown t.sqlite --rank 1 --start @1010 --end @1070",
  ]);
  assert.deepEqual((await source.span(0, [0, 1], 20, 30)).commands, ["stepscope breakdown t.sqlite --rank 0,1 --start @1020 --end @1030"]);
  assert.deepEqual((await source.span(0, [1], 0, 5)).ranks, []);
});

test("what lies under the pointer has a title and facts", () => {
  const { scene } = made(), [rank] = scene.ranks, [, , stream] = scene.lanes[0];
  assert.equal(scene.title(stream, 0), "void gemm<float>(int)");
  assert.equal(scene.title(stream, 2), "9 begin here, mostly communication");
  assert.deepEqual(scene.facts(rank, stream, 2).at(-1), ["busy", "50 %"]);
  assert.deepEqual(scene.facts(rank, stream, 0).slice(-2), [["takes", "10 ns"], ["range", "step 1"]]);
  assert.equal(scene.title(scene.lanes[0][0], 1), "idle");
});
