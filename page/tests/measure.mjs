// How long a served page takes to open, what travels, and how long frames take: for bench/serve.py.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { launch, settled } from "./browser.mjs";

const { ADDRESS, REPORTS, SHOTS } = process.env;
const figures = {};
const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
const page = await context.newPage();

/** Until every row in view has marks, which the page has asked for. */
const quiet = async () => {
  for (let last = -1; ;) {
    const now = await page.evaluate(() => performance.getEntriesByType("resource").length);
    if (now === last) return;
    last = now;
    await page.waitForTimeout(250);
  }
};
const wire = () => page.evaluate(() =>
  performance.getEntries().filter((entry) => "transferSize" in entry).reduce((sum, entry) => sum + entry.transferSize, 0));
const blocks = () => page.evaluate(() => performance.getEntriesByType("resource").filter(({ name }) => name.includes("/api/block"))
  .map(({ responseEnd }) => responseEnd));

for (const visit of ["first", "second"]) {
  const from = Date.now();
  await page.goto(visit === "first" ? ADDRESS : new URL("/", ADDRESS).href);
  await page.waitForSelector("canvas[data-from]", { timeout: 60_000 });
  const canvas = Date.now() - from;
  await quiet();
  const rows = Math.round(Math.max(...await blocks())), bytes = await wire();
  figures[`${visit}_ms`] = Math.max(canvas, rows);
  figures[`${visit}_bytes`] = bytes;
  console.log(`${visit} visit: drawn after ${canvas} ms, all rows in view after ${rows} ms, ${Math.round(bytes / 1000)} kB on the wire`);
}

await page.locator(".stage canvas").hover({ position: { x: 640, y: 110 } });
await page.evaluate(() => {
  window.frames_ = [];
  performance.setResourceTimingBufferSize(4000);
  let last = performance.now();
  const tick = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
});
const before = await wire();
let widest = 0, steps = 0;
for (const [key, times] of [["w", 22], ["s", 24]]) {
  for (let i = 0; i < times; i++, steps++) {
    const was = await wire();
    await page.keyboard.press(key);
    await page.waitForTimeout(300);
    widest = Math.max(widest, (await wire()) - was);
  }
  const { from, to } = await settled(page);
  figures[key === "w" ? "in_ns" : "out_ns"] = to - from;
  console.log(`${key === "w" ? "in" : "out"}: ${((to - from) / 1e3).toFixed(1)} µs in view`);
}
const frames = (await page.evaluate(() => window.frames_)).sort((a, b) => a - b);
const at = (part) => frames[Math.floor(frames.length * part)].toFixed(1);
console.log(`${frames.length} frames: median ${at(0.5)} ms, p95 ${at(0.95)} ms, p99 ${at(0.99)} ms, longest ${frames.at(-1).toFixed(0)} ms`);
console.log(`${Math.round((await wire() - before) / 1000)} kB for ${steps} zooms, at most ${Math.round(widest / 1000)} kB for one`);
Object.assign(figures, { frame_ms: Number(at(0.5)), frame_p95_ms: Number(at(0.95)), zoom_bytes: widest });
await writeFile(join(REPORTS, "figures.json"), JSON.stringify(figures));
if (SHOTS) await page.screenshot({ path: SHOTS });
await browser.close();
