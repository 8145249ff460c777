// Chromium for the tests: it may ask only for what it was told to open, and complains aloud.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
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

/** A report, drawn; `problems` collects errors and requests that it must not make. */
export async function open(browser, name, { url, ...options } = {}) {
  const address = url ?? `file://${join(REPORTS, `${name}.html`)}`;
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
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
