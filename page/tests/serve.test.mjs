// What a reader does with a served trace, in a real Chromium. tests/web/test_serve_browser.py starts the servers.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { context, endless, expected, moved, REPORTS, serious, settled, sideways, test, together } from "./browser.mjs";

const known = await expected("served");
const LABELS = 168, AXIS = 26;

/** The page, drawn; `problems` collects errors and requests to anybody else. */
async function open(address = known.address, { hash = "", changed, ...options } = {}) {
  const own = await context(options);
  if (changed) {
    await own.route(/\/api\/(scene|findings|details|span|search|sql)\b/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: changed(await response.json()) });
    });
  }
  const page = await own.newPage();
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
  const canvas = document.querySelector(".stage canvas"), ctx = canvas.getContext("2d");
  const { data } = ctx.getImageData(200, 30, canvas.width - 220, Math.min(canvas.height - 40, 400));
  return new Set(new Uint32Array(data.buffer)).size > 4;
});

const box = (page) => page.locator(".stage canvas").boundingBox();
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
  await page.waitForFunction(() => document.querySelector(".stage canvas").clientWidth < 1000);
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

test("Enter before the answer is there goes to the first match", async () => {
  const { page } = await open();
  const whole = await settled(page);
  await page.route("**/api/search*", async (route) => { await page.waitForTimeout(800); await route.continue(); });
  await page.fill("input[type=search]", known.search.text);
  await page.press("input[type=search]", "Enter");
  await moved(page, whole);
  await page.waitForSelector(".details dl");
  assert.ok((await page.textContent(".found")).startsWith("1 of "));
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
  await page.locator(".stage canvas").click({ position: { x: 40, y: AXIS + 11 } }); // folds rank 0
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight < height, all);
  await page.locator(".stage canvas").click({ position: { x: LABELS - 8, y: AXIS + 22 + 6 + 11 } }); // pins rank 1
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
  await page.click(".menu summary");
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
  await page.waitForFunction(() => !new URLSearchParams(location.hash.slice(1)).get("closed").includes("functions"));
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

test("names without an end make no page wider than its window", async () => {
  for (const [width, height, colorScheme] of [[390, 844, "dark"], [1440, 900, "light"]]) { // colours have no width
    const { page, problems } = await open(known.address, { viewport: { width, height }, colorScheme, changed: endless });
    await page.waitForSelector(".finding .show", { timeout: 60_000 });
    assert.ok((await page.textContent(".finding h3")).length > 300);
    await page.click(".finding .show");
    await page.waitForSelector(".focus");
    await page.fill("input[type=search]", known.search.text);
    await page.waitForSelector(".found");
    await page.press("input[type=search]", "Enter");
    await page.waitForSelector(".details dl");
    await page.press("input[type=search]", "Escape");
    await page.keyboard.press("m");
    await page.waitForSelector(".span dl");
    await page.click("#sql summary");
    await page.fill("#sql textarea", `SELECT name, repeat(name, 9) AS again, start_ns FROM ops LIMIT 3`);
    await page.click("#sql .query button");
    await page.waitForSelector("#sql table, #sql .failed", { timeout: 60_000 });
    assert.deepEqual(await sideways(page), [], `at ${width}`);
    assert.deepEqual(problems, []);
  }
});

test("a bar of all steps leads to its step", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  await page.waitForSelector(".steps button", { timeout: 60_000 });
  assert.equal(await page.locator(".steps button").count(), 2);
  await page.locator(".steps button").nth(1).click();
  const { from, to } = await moved(page, whole);
  assert.ok(from <= known.step.start && to >= known.step.end && to - from < whole.to - whole.from, `${from} to ${to}`);
  assert.ok((await page.textContent("#steps")).includes("--index 1"));
  assert.deepEqual(problems, []);
});

test("Back undoes jumps, and Forward makes them again", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  await page.selectOption("select[aria-label='Go to a step']", "1");
  const step = await moved(page, whole);
  await page.fill("input[type=search]", known.search.text);
  await page.waitForSelector(".found");
  await page.press("input[type=search]", "Enter");
  await page.waitForSelector(".details dl");
  const match = await moved(page, step);
  await page.waitForFunction(() => location.hash.includes("sel="));
  await page.waitForTimeout(600);
  await page.goBack();
  await page.waitForSelector(".details dl", { state: "detached" });
  assert.deepEqual(await moved(page, match), step, "the step again");
  await page.goBack();
  assert.deepEqual(await moved(page, step), whole, "the whole capture again");
  await page.goForward();
  assert.deepEqual(await moved(page, whole), step);
  await page.goForward();
  await page.waitForSelector(".details dl");
  assert.deepEqual(await moved(page, step), match);
  assert.deepEqual(problems, []);
});

test("a link that is pasted into the open tab is followed", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  const { start, end } = known.step;
  await page.evaluate((hash) => { location.hash = hash; }, `t=${start}_${end}&span=${start}_${end}&ranks=1&q=gemm&closed=none`);
  const near = await moved(page, whole);
  assert.ok(Math.abs(near.from - start) <= 2 && Math.abs(near.to - end) <= 2);
  await page.waitForSelector(".span dl");
  assert.equal(await page.inputValue("input.ranks"), "1");
  assert.equal(await page.inputValue("input[type=search]"), "gemm");
  assert.deepEqual(problems, []);
});

test("the shown finding stands in the address", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  await page.waitForSelector(".finding .show", { timeout: 60_000 });
  await page.click(".finding .show");
  await moved(page, whole);
  await page.waitForFunction(() => location.hash.includes("find="));
  const title = await page.textContent(".focus b");
  const other = await open(known.address, { hash: new URL(page.url()).hash });
  await other.page.waitForSelector(".focus", { timeout: 60_000 });
  assert.equal(await other.page.textContent(".focus b"), title);
  await page.goBack();
  await page.waitForSelector(".focus", { state: "detached" });
  assert.deepEqual([...problems, ...other.problems], []);
});

test("search goes on from what is looked at", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  await page.selectOption("select[aria-label='Go to a step']", "1");
  const step = await moved(page, whole);
  await page.fill("input[type=search]", known.search.text);
  await page.waitForSelector(".found");
  await page.press("input[type=search]", "Enter");
  await moved(page, step);
  const said = await page.textContent(".found");
  const before = known.search.starts.filter((start) => start < step.from).length;
  assert.ok(before > 0 && said.startsWith(`${(before + 1).toLocaleString("en")} of `), `${said}, not ${before + 1}`);
  await page.press("input[type=search]", "Escape");
  await page.keyboard.press("n");
  await page.waitForFunction((text) => document.querySelector(".found").textContent.startsWith(text), `${(before + 2).toLocaleString("en")} of `);
  await page.keyboard.press("0");
  await page.waitForTimeout(600);
  assert.deepEqual(problems, []);
});

test("the strip shows where the view is, and leads elsewhere", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  const { x, y, width } = await page.locator(".overview .strip").boundingBox();
  const colours = await page.$eval(".overview canvas", (canvas) =>
    new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size);
  assert.ok(colours > 4, `${colours} colours`);
  await page.mouse.click(x + 0.75 * width, y + 10);
  const near = await moved(page, whole);
  const middle = (near.from + near.to) / 2;
  assert.ok(Math.abs(middle / whole.to - 0.75) < 0.02, `${middle / whole.to}`);
  const frame = await page.locator(".overview .frame").boundingBox();
  assert.ok(Math.abs(frame.x - x - (near.from / whole.to) * width) < 3 && Math.abs(frame.width - ((near.to - near.from) / whole.to) * width) < 3);
  await page.mouse.move(frame.x + frame.width / 2, y + 10);
  await page.mouse.down();
  await page.mouse.move(frame.x + frame.width / 2 - 0.25 * width, y + 10, { steps: 4 });
  await page.mouse.up();
  const dragged = await moved(page, near);
  assert.ok(Math.abs((near.from - dragged.from) / whole.to - 0.25) < 0.02);
  assert.deepEqual(problems, []);
});

test("the menu of steps follows the view", async () => {
  const { page, problems } = await open();
  const whole = await settled(page), menu = "select[aria-label='Go to a step']";
  assert.equal(await page.inputValue(menu), "-1", "several");
  await page.selectOption(menu, "1");
  await moved(page, whole);
  assert.equal(await page.inputValue(menu), "1");
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 6; i++) {
    await page.keyboard.press("a");
    await page.waitForTimeout(400);
  }
  assert.notEqual(await page.inputValue(menu), "1");
  assert.deepEqual(problems, []);
});

test("kinds of tracks and all ranks are folded", async () => {
  const { page, problems } = await open();
  const tall = () => page.$eval(".tall", (element) => element.clientHeight);
  const all = await tall();
  await page.click(".menu summary");
  await page.uncheck("label:has-text('streams') input");
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight < height, all);
  await page.waitForFunction(() => location.hash.includes("streams"));
  await page.check("label:has-text('streams') input");
  await page.click("text=fold all ranks");
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight < 0.6 * height, all);
  await page.click("text=open all ranks");
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight >= height, all);
  assert.deepEqual(problems, []);
});

test("? lists the keys", async () => {
  const { page, problems } = await open();
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  const said = await page.textContent("dialog");
  for (const word of ["zoom", "search", "frame", "SQL", "Back"]) assert.ok(said.includes(word), word);
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.deepEqual(problems, []);
});

test("a query in SQL has rows, places and a link", async () => {
  const { page, problems } = await open();
  const whole = await settled(page);
  await page.keyboard.press("q");
  await page.keyboard.type(known.sql.query);
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector("#sql table", { timeout: 60_000 });
  const cells = await page.$$eval("#sql tbody tr:first-child td", (all) => all.map((td) => td.title));
  assert.deepEqual(cells.slice(0, 2), known.sql.first);
  await page.evaluate(() => document.activeElement.blur());
  await page.click("#sql tbody tr:first-child button");
  const near = await moved(page, whole);
  assert.ok(near.from <= known.sql.start && known.sql.start <= near.to);
  await page.waitForFunction(() => location.hash.includes("sql="));
  const other = await open(known.address, { hash: new URL(page.url()).hash });
  await other.page.waitForSelector("#sql table", { timeout: 60_000 });
  await other.page.fill("#sql textarea", "SELECT nothing FROM nowhere");
  await other.page.press("#sql textarea", "Control+Enter");
  await other.page.waitForSelector("#sql .failed");
  assert.match(await other.page.textContent("#sql .failed"), /no table nowhere/);
  assert.deepEqual(problems, []);
});

test("tables fit: spans, and rows of a query", async () => {
  for (const width of [1440, 390]) {
    const { page } = await open(known.address, { viewport: { width, height: 900 } });
    await settled(page);
    const { start, end } = known.step;
    await page.evaluate((hash) => { location.hash = hash; }, `t=${start}_${end}&span=${start}_${end}&closed=none`);
    await page.waitForSelector(".span table");
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
    const [inner, outer] = await page.$eval(".span .scroll", (box) => [box.scrollWidth, box.clientWidth]);
    assert.ok(inner <= outer + 1, `${width}: ${inner} of ${outer}`);
  }
});

test("axe-core finds nothing serious", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const { page } = await open(known.address, { colorScheme, bypassCSP: true });
    await page.waitForSelector(".finding", { timeout: 60_000 });
    await page.fill("input[type=search]", known.search.text);
    await page.waitForSelector(".found");
    await page.press("input[type=search]", "Enter");
    await page.waitForSelector(".details dl");
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("m");
    await page.waitForSelector(".span dl");
    await page.click(".menu summary");
    assert.deepEqual(await serious(page), [], colorScheme);
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open]");
    assert.deepEqual(await serious(page), [], `${colorScheme}, keys`);
  }
});

test("a page that lost its server says so, how to start it, and asks again less and less often", async () => {
  const { page } = await open();
  const before = await settled(page);
  let asked = 0;
  await page.route("**/api/**", (route) => { asked += 1; return route.abort(); });
  await page.keyboard.press("w");
  const near = await moved(page, before);
  await page.waitForSelector(".lost");
  await page.evaluate(() => scrollTo(0, 0));
  const seen = await page.locator(".lost").boundingBox();
  assert.ok(seen.y >= 0 && seen.y + seen.height <= 800, "in view, wherever one has scrolled to");
  const said = await page.textContent(".lost");
  for (const word of ["has stopped", "stepscope serve ", "--port"]) assert.ok(said.includes(word), `${word} in ${said}`);
  await page.waitForTimeout(7_500);
  assert.ok(asked < 12, `${asked} requests`);
  await page.unroute("**/api/**");
  await page.click(".lost button:has-text('ask now')");
  await page.waitForSelector(".lost", { state: "detached" });
  await page.keyboard.press("w");
  await moved(page, near);
  await drawn(page);
});

together("a served trace");
