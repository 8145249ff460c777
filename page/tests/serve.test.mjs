// What a reader does with a served trace, in a real Chromium. tests/web/test_serve_browser.py starts the servers.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { expected, launch, moved, REPORTS, settled, visible } from "./browser.mjs";

let browser, known;
before(async () => {
  [browser, known] = [await launch(), await expected("served")];
});
after(() => browser.close());

const LABELS = 168, AXIS = 26;

/** The page, drawn; `problems` collects errors and requests to anybody else. */
async function open(address = known.address, { hash = "", ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const problems = [], origin = new URL(address).origin;
  page.on("console", (message) => {
    // Reading the canvas is what only these tests do.
    if (["error", "warning"].includes(message.type()) && !message.text().includes("getImageData")) problems.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== origin && !request.url().startsWith("data:")) problems.push(`request: ${request.url()}`);
  });
  const from = Date.now();
  await page.goto(address + hash);
  await page.waitForSelector("canvas[data-from]", { timeout: 60_000 });
  await drawn(page);
  return { page, problems, ms: Date.now() - from };
}

/** Once rows have their marks: the canvas has more colours than an empty one. */
const drawn = (page) => page.waitForFunction(() => {
  const canvas = document.querySelector("canvas"), ctx = canvas.getContext("2d");
  const { data } = ctx.getImageData(200, 30, canvas.width - 220, Math.min(canvas.height - 40, 400));
  return new Set(new Uint32Array(data.buffer)).size > 4;
});

const box = (page) => page.locator("canvas").boundingBox();
const wire = (page) => page.evaluate(() =>
  performance.getEntries().filter((entry) => "transferSize" in entry).reduce((sum, entry) => sum + entry.transferSize, 0));

test("opens without an error, asks nobody else, and hides the token", async () => {
  const { page, problems } = await open();
  assert.ok(!page.url().includes("token"), page.url());
  assert.ok((await wire(page)) < 500_000);
  assert.ok((await page.textContent("main")).includes(`${known.ops.toLocaleString("en")} ops`));
  await page.waitForSelector(".finding", { timeout: 60_000 });
  assert.deepEqual(problems, []);
});

test("keys work without a click, at the pointer", async () => {
  const { page, problems } = await open();
  const whole = await settled(page), { x, y, width } = await box(page);
  const at = x + 700;
  await page.mouse.move(at, y + 120);
  await page.keyboard.press("w");
  const near = await moved(page, whole);
  assert.ok(near.to - near.from < 0.6 * (whole.to - whole.from), "closer");
  const under = (view) => view.from + ((at - x - LABELS) / (width - LABELS)) * (view.to - view.from);
  assert.ok(Math.abs(under(near) - under(whole)) < 0.01 * (whole.to - whole.from), "what was under the pointer stays there");
  await page.keyboard.press("d");
  const right = await moved(page, near);
  assert.ok(right.from > near.from);
  await page.keyboard.press("a");
  await moved(page, right);
  await page.keyboard.press("0");
  assert.deepEqual(await moved(page, right), whole);
  await page.keyboard.press("/");
  await page.keyboard.type("w");
  assert.equal(await page.inputValue("input[type=search]"), "w", "letters typed are letters");
  assert.deepEqual(await settled(page), whole);
  assert.deepEqual(problems, []);
});

test("a panel that opens on the way does not stop a movement", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  await page.keyboard.press("w");
  await moved(page, whole);
  await page.evaluate(() => {
    dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
    document.querySelector("#timeline").style.width = "900px"; // as a panel beside it would
  });
  await page.waitForFunction(() => document.querySelector("canvas").clientWidth < 1000);
  await page.waitForTimeout(500);
  assert.deepEqual(await settled(page), whole);
  assert.deepEqual(problems, []);
});

test("searches the whole capture, frames an op, and links to it", async () => {
  const { page, problems } = await open();
  await page.fill("input[type=search]", known.search.text);
  await page.waitForSelector(".found");
  const said = await page.textContent(".found");
  assert.ok(said.startsWith(`${known.search.matches.toLocaleString("en")} matches`), said);
  const whole = await settled(page);
  await page.press("input[type=search]", "Enter");
  await moved(page, whole);
  await page.waitForSelector(".details dl");
  const details = await page.textContent(".details");
  for (const word of [known.search.text, "grid", "in the queue", "launched by"]) assert.ok(details.includes(word), word);
  await page.press("input[type=search]", "Escape");
  const before = await settled(page);
  await page.keyboard.press("f");
  const framed = await moved(page, before);
  const { start, end } = known.search.first;
  assert.ok(framed.from <= start && end <= framed.to && framed.to - framed.from < 3 * Math.max(end - start, 500));
  await page.keyboard.press("m");
  await page.waitForSelector(".span dl");
  await page.waitForFunction(() => location.hash.includes("span=") && location.hash.includes("sel="));
  const other = await open(known.address, { hash: new URL(page.url()).hash });
  await other.page.waitForSelector(".details dl");
  const again = await settled(other.page);
  assert.ok(Math.abs(again.from - framed.from) <= 2 && Math.abs(again.to - framed.to) <= 2, "the same view");
  await other.page.waitForSelector(".span dl");
  await page.keyboard.press(".");
  await page.waitForFunction((text) => document.querySelector(".details").textContent !== text, details);
  assert.deepEqual([...problems, ...other.problems], []);
});

test("a span has the sums of the commands", async () => {
  const { page, problems } = await open();
  await settled(page);
  const { x, y } = await box(page);
  await page.mouse.move(x + 400, y + AXIS / 2);
  await page.mouse.down();
  await page.mouse.move(x + 640, y + AXIS / 2, { steps: 5 });
  await page.mouse.up();
  await page.waitForSelector(".span dl");
  const sums = JSON.parse(await page.getAttribute(".span dl", "data-sums"));
  const command = await page.textContent(".span .command code");
  await writeFile(join(REPORTS, "span.json"), JSON.stringify({ sums, command }));
  await page.keyboard.press("Escape");
  await page.waitForSelector(".span", { state: "detached" });
  assert.deepEqual(problems, []);
});

test("ranks are filtered, pinned, and the culprit comes first", async () => {
  const { page, problems } = await open();
  await page.waitForSelector(".finding", { timeout: 60_000 });
  const { x, y } = await box(page);
  const first = async () => {
    await page.mouse.move(x + 5, y + 10);
    await page.mouse.move(x + 600, y + AXIS + 11, { steps: 3 });
    return page.textContent(".tip");
  };
  assert.ok((await first()).includes("rank 0"));
  await page.selectOption("select[aria-label='Order of ranks']", "culprit");
  await page.waitForTimeout(300);
  assert.ok((await first()).includes(`rank ${known.culprit}`));
  const tall = () => page.$eval(".tall", (element) => element.clientHeight);
  const all = await tall();
  await page.fill("input.ranks", "1-2");
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight < 0.7 * height, all);
  assert.ok(/rank [12]/.test(await first()));
  await page.fill("input.ranks", "");
  await page.selectOption("select[aria-label='Order of ranks']", "rank");
  await page.waitForTimeout(200);
  await page.locator("canvas").click({ position: { x: 40, y: AXIS + 11 } }); // folds rank 0
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight < height, all);
  await page.locator("canvas").click({ position: { x: LABELS - 8, y: AXIS + 22 + 6 + 11 } }); // pins rank 1
  await page.waitForTimeout(300);
  assert.ok((await first()).includes("rank 1"));
  assert.deepEqual(problems, []);
});

test("a click on a finding shows it", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  await page.waitForSelector(".finding .show", { timeout: 60_000 });
  await page.click(".finding .show");
  await moved(page, whole);
  assert.ok((await page.textContent(".focus")).includes(await page.textContent(".finding h3")));
  assert.deepEqual(problems, []);
});

test("zooms to a single op and back", async () => {
  const { page, problems } = await open();
  const { x, y } = await box(page);
  await page.mouse.move(x + 640, y + 150);
  const whole = await settled(page);
  await page.evaluate(() => {
    window.frames_ = [];
    let last = performance.now();
    const tick = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
  });
  for (let i = 0; i < 13; i++) {
    await page.keyboard.press("w");
    await page.waitForTimeout(165);
  }
  const near = await settled(page);
  assert.ok(near.to - near.from < (whole.to - whole.from) / 4_000, "close");
  for (let i = 0; i < 14; i++) {
    await page.keyboard.press("s");
    await page.waitForTimeout(170);
  }
  assert.deepEqual(await settled(page), whole);
  const frames = (await page.evaluate(() => window.frames_)).sort((a, b) => a - b);
  const median = frames[frames.length >> 1], p95 = frames[Math.floor(frames.length * 0.95)];
  console.log(`frames: median ${median.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms`);
  await writeFile(join(REPORTS, "frames.json"), JSON.stringify({ median, p95, n: frames.length }));
  assert.ok(median < 150, `a frame takes ${median.toFixed(1)} ms`); // 17 ms on an idle machine
  assert.deepEqual(problems, []);
});

test("two runs lie below each other, aligned on a step", async () => {
  if (!known.both) return;
  const { page, problems } = await open(known.both);
  const { x, y } = await box(page);
  await page.mouse.move(x + 5, y + 5);
  await page.mouse.move(x + 600, y + AXIS + 11, { steps: 3 });
  assert.ok((await page.textContent(".tip")).includes("A rank 0"));
  assert.ok((await page.textContent("main")).includes("B: "));
  const before = await settled(page);
  await page.selectOption("select[aria-label='Align on this step']", "1");
  const step = await moved(page, before);
  assert.ok(step.from <= known.step.start && known.step.end <= step.to);
  await page.waitForTimeout(300);
  assert.deepEqual(problems, []);
});

test("torch ops are rows, found by search, and lead to what they launched", async () => {
  const { page, problems } = await open(known.both);
  const tall = () => page.$eval(".tall", (element) => element.clientHeight);
  const box_ = page.locator("label:has-text('functions') input");
  if (await box_.isChecked()) await box_.uncheck();
  await page.waitForTimeout(200);
  const without = await tall();
  await box_.check();
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight > height, without);
  await page.fill("input[type=search]", known.functions.text);
  await page.waitForSelector(".found");
  const said = await page.textContent(".found");
  assert.ok(said.startsWith(`${known.functions.matches.toLocaleString("en")} match`), said);
  await page.press("input[type=search]", "Enter");
  await page.waitForSelector(".details dl");
  const details = await page.textContent(".details");
  for (const word of [known.functions.text, "torch op, thread", "launched"]) assert.ok(details.includes(word), `${word} in ${details}`);
  await page.waitForFunction(() => location.hash.includes("fn=1"));
  assert.deepEqual(problems, []);
});

test("fits a phone, light and dark", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const { page, problems } = await open(known.address, { viewport: { width: 390, height: 844 }, colorScheme });
    await page.waitForSelector(".finding", { timeout: 60_000 });
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
    assert.ok((await page.locator(".finding h3").first().boundingBox()).width > 200, "findings can be read");
    assert.deepEqual(problems, []);
  }
});

test("a page that lost its server says so", async () => {
  const { page } = await open();
  await page.route("**/api/**", (route) => route.abort());
  const before = await settled(page);
  await page.keyboard.press("w");
  await moved(page, before);
  await page.waitForSelector(".failed");
});
