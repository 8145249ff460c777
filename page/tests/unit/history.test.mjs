// What becomes of the address on a machine that is slow: the page hears of Back late, and a jump is drawn late.
import assert from "node:assert/strict";
import { test } from "node:test";
import { keeper } from "../../src/serve/history.ts";

/** A browser's history, whose `hashchange` comes only when it is told to. */
function browser() {
  const entries = [""];
  let here = 0;
  globalThis.location = { get hash() { return entries[here]; } };
  globalThis.history = {
    pushState: (_, __, address) => { entries.splice(here + 1, entries.length, address); here += 1; },
    replaceState: (_, __, address) => { entries[here] = address; },
  };
  return { entries, go: (by) => { here += by; } };
}

const settled = () => new Promise((resolve) => setTimeout(resolve, 400));
const view = (from) => ({ from, to: from + 10 });

test("what Forward leads to is not overwritten before the page has heard of it", async () => {
  const { entries, go } = browser();
  let shown = view(0);
  const kept = keeper({ current: { now: () => shown, apply: (linked) => { shown = linked; } } });
  kept.remember();
  await settled();
  kept.jump();
  shown = view(100);
  await settled();
  assert.deepEqual(entries, ["#t=0_10", "#t=100_110"]);
  go(-1);
  kept.changed();
  kept.remember();  // the view that Back led to is drawn, and stands
  go(1);
  await settled();  // its time has come, and Forward was quicker
  assert.deepEqual(entries, ["#t=0_10", "#t=100_110"]);
  kept.changed();
  assert.deepEqual(shown, view(100));
});

test("a jump that is drawn late is an entry of its own all the same", async () => {
  const { entries } = browser();
  let shown = view(0);
  const kept = keeper({ current: { now: () => shown, apply: () => {} } });
  kept.remember();
  await settled();
  kept.jump();
  await settled();  // nothing is drawn yet
  shown = view(100);
  kept.remember();
  await settled();
  assert.deepEqual(entries, ["#t=0_10", "#t=100_110"]);
});
