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
  page.$eval("canvas", (canvas) => ({ from: Number(canvas.dataset.from), to: Number(canvas.dataset.to) }));

/** Once the view has changed from `before` and stands still. */
export async function moved(page, before) {
  await page.waitForFunction(
    ([from, to]) => {
      const { dataset } = document.querySelector("canvas");
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
