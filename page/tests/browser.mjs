// Chromium for the tests: it may ask only for what it was told to open, and complains aloud.
import { AsyncLocalStorage } from "node:async_hooks";
import { createServer } from "node:http";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { chromium } from "playwright-core";

/** Folder with the reports under test, and with what the Python side knows of them. */
export const REPORTS = process.env.REPORTS;

export const expected = async (name) => JSON.parse(await readFile(join(REPORTS, `${name}.expected.json`), "utf8"));

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });

const opened = new AsyncLocalStorage();
const readers = [];
let browser;

/** What a reader does. Declared first, done by `together`. */
export const test = (name, body) => readers.push([name, body]);

/** The readers of a file, three at a time, since they mostly wait. What one has opened is closed after it: pages that stay open draw on. */
export const together = (name) =>
  describe(name, { concurrency: 3 }, () => {
    before(async () => { browser = await launch(); });
    after(() => browser.close());
    for (const [does, body] of readers) {
      it(does, () => opened.run([], async () => {
        try {
          await body();
        } finally {
          await Promise.all(opened.getStore().map((context) => context.close()));
        }
      }));
    }
  });

/** A window of its own: nothing is shared with what other readers have open. */
export async function context(options) {
  const made = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  opened.getStore().push(made);
  return made;
}

/** A report, drawn; `problems` collects errors and requests that it must not make. */
export async function open(name, { url, ...options } = {}) {
  const address = url ?? `file://${join(REPORTS, `${name}.html`)}`;
  const page = await (await context(options)).newPage();
  const problems = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    if (request.url() !== address) problems.push(`request: ${request.url()}`);
  });
  await page.goto(address);
  await page.waitForSelector("canvas[data-from]", { timeout: 60_000 });
  return { page, problems };
}

/** The time that the timeline shows, in ns. */
export const visible = (page) =>
  page.$eval(".stage canvas", (canvas) => ({ from: Number(canvas.dataset.from), to: Number(canvas.dataset.to) }));

/** Once the view has changed from `before` and stands still. */
export async function moved(page, before) {
  await page.waitForFunction(
    ([from, to]) => {
      const { dataset } = document.querySelector(".stage canvas");
      return Number(dataset.from) !== from || Number(dataset.to) !== to;
    },
    [before.from, before.to],
  );
  return settled(page);
}

export async function settled(page) {
  let last = await visible(page);
  for (;;) {
    await page.waitForTimeout(150);
    const now = await visible(page);
    if (now.from === last.from && now.to === last.to) return now;
    last = now;
  }
}

const AXE = await readFile(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/** What axe-core holds against a page that keeps people out: rule, and the first element. */
export async function serious(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document));
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary.slice(0, 200)}`).slice(0, 3).join(" | ")}`);
}

/** Tables that are wider than their boxes. */
export const tooWide = (page) => page.$$eval(".scroll", (boxes) =>
  boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => `${box.getAttribute("aria-label")}: ${box.scrollWidth} of ${box.clientWidth}`));

/** 300 characters that no line may break between: as templates of C++ do, and worse. */
const ENDLESS = "_ZN7cutlass13device_kernelI".padEnd(300, "Nm5Fp8E4M3_");
/** Keys of the pages' data under which names of a trace, and sentences about them, are shown. */
const NAMES = new Set(["access", "above", "axis", "command", "commands", "evidence", "family", "frame", "good_from", "gpu", "group", "host",
  "key", "label", "name", "notes", "op", "part", "phase", "place", "precision", "roof", "shapes", "source", "stage", "stall", "statement", "text",
  "texts", "title", "try_next", "what", "why", "windows", "facts"]);
/** What tells lanes, marks and colours apart is not a name. */
const KEPT = new Set(["kinds", "lanes", "severity", "arrows"]);

/** A page's data with an endless name in everything that quotes one. */
export function endless(value, key = "") {
  if (typeof value === "string") return NAMES.has(key) && value ? `${value} ${ENDLESS}` : value;
  if (Array.isArray(value)) return value.map((item) => endless(item, key));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, KEPT.has(name) ? item : endless(item, name)]));
}

/** A copy of a report, `endless`. */
export async function endlessReport(name) {
  const html = await readFile(join(REPORTS, `${name}.html`), "utf8");
  const [whole, text] = html.match(/<script type="application\/json" id="report">([^]*?)<\/script>/);
  const data = JSON.stringify(endless(JSON.parse(text))).replace(/[<>&]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16)}`);
  await writeFile(join(REPORTS, `${name}-endless.html`), html.replace(whole, () => whole.replace(text, () => data)));
  return `${name}-endless`;
}

/** How far a page is wider than its window: not at all, or by what. */
export const sideways = (page) => page.evaluate(() => {
  const { scrollWidth } = document.scrollingElement;
  if (scrollWidth <= innerWidth) return [];
  const wide = [...document.querySelectorAll("body *")].filter((element) =>
    element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".scroll, .stage, nav"));
  return [`${scrollWidth} of ${innerWidth}`, ...wide.slice(0, 5).map((element) => `${element.tagName}.${element.className}`)];
});

/** The folder over HTTP, as a report that somebody put on a server. */
export async function serve() {
  const server = createServer(async (request, response) => {
    try {
      const body = await readFile(join(REPORTS, decodeURIComponent(request.url)));
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return server;
}
