// The view in an address, there and back.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readLink, written } from "../../src/serve/link";

test("what is written is read again", () => {
  const view = {
    from: 10, to: 20_000, span: [12, 14], selected: [0, 3, 17], search: "/gemm|ärger/ & more", filter: "0,3-5", sort: "culprit",
    pinned: [1, 1_048_577], closed: ["host", "functions"], step: 2, finding: "host-sync~1", place: 3, sql: "SELECT 'a#b'",
  };
  assert.deepEqual(readLink(written(view)), view);
});

test("no rows hidden is not the same as nothing said", () => {
  assert.deepEqual(readLink(written({ closed: [] })).closed, ["none"]);
  assert.equal(readLink(written({})).closed, undefined);
});

test("what is as usual takes no room", () => {
  assert.equal(written({ sort: "rank", pinned: [], step: 0, place: 2, search: "" }), "#");
});

test("an address that somebody damaged is read as far as it makes sense", () => {
  assert.deepEqual(readLink("#t=5_x&span=1&sel=0_1_2&step=&place=a"), { selected: [0, 1, 2] });
  assert.deepEqual(readLink("#t=20_10"), {});
});
