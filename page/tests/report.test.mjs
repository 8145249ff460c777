// What a reader does with a report, in a real Chromium. tests/report/test_report_browser.py makes the reports.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { endlessReport, expected, moved, open, REPORTS, serious, serve, settled, sideways, test, together, tooWide, visible } from "./browser.mjs";

const background = (page) => page.$eval("body", (body) => getComputedStyle(body).backgroundColor);
const light = (colour) => colour.match(/\d+/g).slice(0, 3).every((part) => Number(part) > 200);

test("opens from a file, without an error or a request", async () => {
  const { page, problems } = await open("job");
  const known = await expected("job");
  assert.equal(await page.textContent(".statement"), known.statement);
  const titles = await page.$$eval(".finding h3", (found) => found.map((title) => title.textContent));
  assert.deepEqual(titles, known.titles);
  const sections = await page.$$eval("main section", (found) => found.map((section) => section.id));
  assert.deepEqual(sections, ["findings", "breakdown", "steps", "timeline", "compute", "overlap", "collectives", "stragglers", "pipeline", "notes"]);
  for (const id of sections) await page.$eval(`#${id}`, (section) => section.scrollIntoView());
  assert.equal(await page.$$eval(".gantt rect", (found) => found.length), known.chunks);
  assert.deepEqual(problems, []);
});

test("opens from a server too", async () => {
  const server = await serve();
  const { page, problems } = await open("job", { url: `http://127.0.0.1:${server.address().port}/job.html` });
  assert.ok(await page.isVisible(".statement"));
  assert.deepEqual(problems, []);
  server.close();
});

test("every figure has its command, and the clipboard gets it", async () => {
  const { page, problems } = await open("job", { permissions: ["clipboard-read", "clipboard-write"] });
  const commands = await page.$$eval(".command code", (found) => found.map((code) => code.textContent));
  for (const name of ["diagnose", "breakdown", "timeline", "overlap", "collectives", "stragglers", "pipeline", "report"]) {
    assert.ok(commands.some((command) => command.startsWith(`stepscope ${name} `)), name);
  }
  await page.click("#breakdown .command:last-child button");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()),
    await page.textContent("#breakdown .command:last-child code"));
  assert.deepEqual(problems, []);
});

test("zooms at the pointer, moves, and shows all again", async () => {
  const { page, problems } = await open("job");
  await page.locator(".stage canvas").scrollIntoViewIfNeeded();
  const whole = await settled(page);
  const box = await page.locator(".stage canvas").boundingBox();
  const [labels, at] = [168, box.x + 600];
  await page.mouse.move(at, box.y + 60);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -300);
  await page.keyboard.up("Control");
  const near = await moved(page, whole);
  assert.ok(near.to - near.from < 0.6 * (whole.to - whole.from), "closer");
  const under = (view) => view.from + ((at - box.x - labels) / (box.width - labels)) * (view.to - view.from);
  assert.ok(Math.abs(under(near) - under(whole)) < 0.01 * (whole.to - whole.from), "what was under the pointer stays there");
  await page.mouse.down();
  await page.mouse.move(at - 100, box.y + 60, { steps: 4 });
  await page.mouse.up();
  const dragged = await moved(page, near);
  const pixel = (near.to - near.from) / (box.width - labels);
  assert.ok(Math.abs(dragged.from - near.from - 100 * pixel) < 3 * pixel, "dragged along");
  await page.focus(".stage");
  await page.keyboard.press("w");
  const closer = await moved(page, dragged);
  assert.ok(closer.to - closer.from < 0.6 * (dragged.to - dragged.from));
  await page.click("text=whole window");
  assert.deepEqual(await moved(page, closer), whole);
  assert.deepEqual(problems, []);
});

test("searches names, and goes from match to match", async () => {
  const { page, problems } = await open("job");
  const { search } = await expected("job");
  const whole = await settled(page);
  await page.fill("input[type=search]", search.text);
  await page.waitForSelector(".found");
  const said = await page.textContent(".found");
  assert.ok(said.startsWith(`${search.matches.toLocaleString("en")} matches`), said);
  await page.press("input[type=search]", "Enter");
  const first = await moved(page, whole);
  assert.ok(first.from <= search.first.start && search.first.end <= first.to, "the first match is in view");
  assert.ok((await page.textContent(".details")).includes(search.text));
  await page.click(".found >> text=list");
  assert.ok((await page.textContent(".details table")).includes(search.text), "names that match, with their figures");
  await page.fill("input[type=search]", "/[/");
  await page.waitForSelector(".found:has-text('regular expression')");
  await page.fill("input[type=search]", "no kernel is called so");
  await page.waitForSelector(".found:has-text('0 matches')");
  assert.deepEqual(problems, []);
});

test("a click on a finding shows it on the timeline", async () => {
  const { page, problems } = await open("job");
  const { place } = await expected("job");
  const whole = await settled(page);
  await page.click(".finding .show");
  const shown = await moved(page, whole);
  assert.ok(shown.from <= place.start && place.end <= shown.to, "its first moment is in view");
  assert.ok(shown.to - shown.from < whole.to - whole.from, "and close");
  const { top, bottom } = await page.$eval("#timeline", (section) => section.getBoundingClientRect().toJSON());
  assert.ok(top < 400 && bottom > 400, "the timeline is on the screen");
  assert.ok((await page.textContent(".focus")).includes(await page.textContent(".finding h3")));
  assert.deepEqual(problems, []);
});

test("hovering and clicking name an op, with a command for its time", async () => {
  const { page, problems } = await open("job", { viewport: { width: 1280, height: 640 } }); // a low screen
  const { place, name, rank, command } = await expected("job");
  const whole = await settled(page);
  await page.click(".finding .show");
  const shown = await moved(page, whole);
  await page.waitForFunction(() => document.querySelector("#timeline").getBoundingClientRect().top < 60);
  const box = await page.locator(".stage canvas").boundingBox();
  const x = box.x + 168 + (((place.start + place.end) / 2 - shown.from) / (shown.to - shown.from)) * (box.width - 168);
  const told = (tip) => tip?.includes(name) && tip.includes(`rank ${rank},`);
  let tip = null;
  for (let y = box.y + 30; y < Math.min(box.y + box.height, 640) && !told(tip); y += 5) {
    await page.mouse.move(x, y);
    tip = (await page.$(".tip")) && (await page.textContent(".tip"));
    if (told(tip)) await page.mouse.click(x, y);
  }
  assert.ok(told(tip), `the op lies where its finding says: ${tip}`);
  assert.equal(await page.textContent(".details .command code"), command);
  assert.deepEqual(problems, []);
});

test("dark where the system is, and by the button", async () => {
  const { page, problems } = await open("job", { colorScheme: "dark" });
  assert.ok(!light(await background(page)));
  await page.click("button.theme");
  assert.ok(light(await background(page)));
  const other = await open("job");
  assert.ok(light(await background(other.page)));
  assert.deepEqual([...problems, ...other.problems], []);
});

test("prints, light and without its tools", async () => {
  const { page, problems } = await open("job", { colorScheme: "dark" });
  const pdf = await page.pdf({ format: "A4" });
  assert.equal(pdf.subarray(0, 5).toString(), "%PDF-");
  assert.ok(pdf.toString("latin1").match(/\/Type\s*\/Page\b/g).length >= 2, "several pages");
  assert.ok(!light(await background(page)), "dark again afterwards");
  await page.emulateMedia({ media: "print" });
  for (const hidden of ["nav", ".tools", ".show"]) assert.ok(!(await page.isVisible(hidden)), hidden);
  assert.ok(await page.isVisible(".statement"));
  assert.deepEqual(problems, []);
});

test("fits a phone: nothing is wider than the screen, and findings can be read", async () => {
  for (const name of ["job", "hostile"]) {
    const { page, problems } = await open(name, { viewport: { width: 390, height: 844 } });
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, name);
    if (name === "job") assert.deepEqual(await tooWide(page), []);
    for (const text of await page.locator(".finding h3, .finding p").all()) {
      const { x, width } = await text.boundingBox();
      assert.ok(x >= 0 && width > 250 && x + width <= 390, "a finding has the screen's width");
    }
    assert.deepEqual(problems, []);
  }
});

test("names without an end make no page wider than its window", async () => {
  for (const name of [await endlessReport("job"), await endlessReport("measured")]) {
    for (const [width, height, colorScheme] of [[390, 844, "dark"], [1440, 900, "light"]]) { // colours have no width
      const { page, problems } = await open(name, { viewport: { width, height }, colorScheme });
      assert.ok((await page.textContent(".finding h3")).length > 300);
      assert.deepEqual(await sideways(page), [], `${name} at ${width}`);
      const wider = await page.$$eval(".finding, .command, .statement, .window", (cards) => cards
        .filter((card) => card.getBoundingClientRect().left < 0 || card.getBoundingClientRect().right > innerWidth)
        .map((card) => `${card.className} of ${card.clientWidth}`));
      assert.deepEqual(wider, [], `${name} at ${width}`);
      assert.deepEqual(problems, []);
    }
  }
});

test("tables fit a desk, and axe-core finds nothing serious", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const { page } = await open("job", { viewport: { width: 1440, height: 900 }, colorScheme, bypassCSP: true });
    assert.deepEqual(await tooWide(page), []);
    assert.deepEqual(await serious(page), [], colorScheme);
  }
});

test("names are text, whatever they say", async () => {
  const { page, problems } = await open("hostile");
  const { texts } = await expected("hostile");
  await page.waitForTimeout(200);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  const shown = await page.textContent("body");
  for (const text of texts) assert.ok(shown.includes(text), text);
  await page.fill("input[type=search]", "</script>");
  await page.waitForSelector(".found:has-text('1 match')");
  assert.equal(await page.$$eval("main img, main script", (found) => found.length), 0);
  assert.deepEqual(problems, []);
});

test("a hundred thousand ops move smoothly", async () => {
  const { page, problems } = await open("large");
  const { ops } = await expected("large");
  assert.ok((await page.textContent("#timeline")).includes(`${ops.toLocaleString("en")} ops`));
  await page.focus(".stage");
  const whole = await settled(page);
  await page.keyboard.press("w");
  await moved(page, whole);
  // How long the page takes for a frame of the whole window, which has the most to draw.
  const frames = await page.evaluate(async () => {
    const [stage, times] = [document.querySelector(".stage"), []];
    for (let i = 0; i < 12; i++) {
      stage.dispatchEvent(new KeyboardEvent("keydown", { key: i % 2 ? "w" : "0", bubbles: true }));
      for (let frame = 0; frame < 12; frame++) {
        const start = performance.now();
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - start);
      }
    }
    return times.sort((a, b) => a - b);
  });
  const median = frames[frames.length >> 1];
  assert.ok(median < 150, `a frame takes ${median.toFixed(1)} ms`); // 17 ms on an idle machine
  assert.deepEqual(problems, []);
});

test("many rows scroll", async () => {
  const { page, problems } = await open("job");
  await page.locator(".stage canvas").scrollIntoViewIfNeeded();
  await page.click(".menu summary");
  await page.check("label:has-text('host threads') input");
  await page.waitForFunction(() => document.querySelector(".tall").clientHeight > document.querySelector(".stage").clientHeight);
  await page.$eval(".stage", (stage) => { stage.scrollTop = stage.scrollHeight; });
  await page.waitForTimeout(300);
  const box = await page.locator(".stage").boundingBox();
  const canvas = await page.locator(".stage canvas").boundingBox();
  assert.ok(Math.abs(canvas.height - box.height) < 4 && Math.abs(canvas.y - box.y) < 4, "the canvas is what is visible");
  const tips = [];
  for (let y = box.y + box.height - 8; y > box.y + box.height - 150; y -= 7) {
    await page.mouse.move(box.x + 700, y);
    if (await page.$(".tip")) tips.push(await page.textContent(".tip"));
  }
  assert.ok(tips.some((tip) => tip.includes("rank 3")), "the last rank is at the bottom");
  assert.ok(!tips.some((tip) => tip.includes("rank 0")));
  const drawn = await page.$eval(".stage canvas", (element) => {
    const { data } = element.getContext("2d").getImageData(0, element.height - 150, element.width, 140);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  assert.ok(drawn > 5, "and it is drawn");
  assert.deepEqual(problems, []);
});

test("a span has the sums of the commands, and the strip leads elsewhere", async () => {
  const { page, problems } = await open("job");
  await page.locator(".overview").scrollIntoViewIfNeeded();
  const whole = await settled(page);
  const { x, y } = await page.locator(".stage canvas").boundingBox();
  await page.mouse.move(x + 400, y + 13);
  await page.mouse.down();
  await page.mouse.move(x + 640, y + 13, { steps: 5 });
  await page.mouse.up();
  await page.waitForSelector(".span dl");
  const sums = JSON.parse(await page.getAttribute(".span dl", "data-sums"));
  const commands = await page.$$eval(".span .command code", (found) => found.map((code) => code.textContent));
  await writeFile(join(REPORTS, "span.json"), JSON.stringify({ sums, commands }));
  const strip = await page.locator(".overview .strip").boundingBox();
  await page.mouse.click(strip.x + strip.width * 0.75, strip.y + 10);
  const near = await moved(page, whole), middle = (near.from + near.to) / 2 / whole.to;
  assert.ok(Math.abs(middle - 0.75) < 0.01 && near.to - near.from < 0.2 * whole.to, "where the strip was pressed");
  await page.keyboard.press("?");
  assert.ok((await page.textContent("dialog")).includes("next and previous match"));
  assert.deepEqual(problems, []);
});

test("ranks are chosen, and the culprit comes first", async () => {
  const { page, problems } = await open("job");
  const { rank } = await expected("job");
  await page.locator(".stage canvas").scrollIntoViewIfNeeded();
  const first = async () => {
    const { x, y } = await page.locator(".stage canvas").boundingBox();
    await page.mouse.move(x + 5, y + 10);
    await page.mouse.move(x + 600, y + 37, { steps: 3 });
    return page.textContent(".tip");
  };
  assert.ok((await first()).includes("rank 0"));
  await page.selectOption("select[aria-label='Order of ranks']", "culprit");
  await page.waitForTimeout(300);
  assert.ok((await first()).includes(`rank ${rank}`));
  await page.fill("input.ranks", "1-2");
  await page.waitForTimeout(300);
  assert.ok(/rank [12]/.test(await first()));
  assert.deepEqual(problems, []);
});

test("ranks close and open", async () => {
  const { page, problems } = await open("job");
  const tall = () => page.$eval(".tall", (element) => element.clientHeight);
  const before = await tall();
  await page.locator(".stage canvas").scrollIntoViewIfNeeded();
  await page.locator(".stage canvas").click({ position: { x: 40, y: 36 } });
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight < height, before);
  await page.locator(".stage canvas").click({ position: { x: 40, y: 36 } });
  await page.waitForFunction((height) => document.querySelector(".tall").clientHeight === height, before);
  assert.ok((await visible(page)).from === 0);
  assert.deepEqual(problems, []);
});

together("a report");
