// The pictures of the README and of docs/, taken anew: `make pictures` (docs/pictures.py makes what they show).
import { join } from "node:path";
import { expected, launch, moved, REPORTS, settled } from "./browser.mjs";

const { serve, images } = await expected("pictures");
const browser = await launch();

async function at(address, height) {
  const page = await (await browser.newContext({ viewport: { width: 1280, height } })).newPage();
  await page.goto(address);
  await page.waitForSelector("canvas[data-from]", { timeout: 60_000 });
  await settled(page);
  return page;
}
const keep = async (page, name) => {
  await page.mouse.move(0, 0);
  await page.waitForTimeout(600);
  await page.screenshot({ path: join(images, name) });
};
const report = (name) => `file://${join(REPORTS, name)}`;

await keep(await at(report("eager.html"), 800), "report.png");
await keep(await at(report("demo.html"), 960), "tutorial-report.png");

const timeline = await at(report("demo.html"), 920);
const whole = await settled(timeline);
await timeline.click(".finding .show");
await moved(timeline, whole);
await keep(timeline, "tutorial-timeline.png");

// A transfer of rank 3 that waited for another rank, in the first step.
const served = await at(serve, 900);
await served.waitForSelector(".steps button", { timeout: 60_000 });
await served.fill("input.ranks", "1,3");
await served.fill("input[type=search]", "SendRecv");
await served.waitForSelector(".found");
await served.press("input[type=search]", "Enter");
await served.waitForSelector(".details dl");
await served.press("input[type=search]", "Escape");
for (let i = 0; i < 20 && !/on rank 3.*waited here/s.test(await served.textContent(".details")); i++) {
  const before = await served.textContent(".details");
  await served.keyboard.press("n");
  await served.waitForFunction((text) => document.querySelector(".details").textContent !== text, before);
  await served.waitForTimeout(300);
}
await served.selectOption("select[aria-label='Go to a step']", "0");
await served.fill("input[type=search]", "");
await served.evaluate(() => document.activeElement.blur());
await served.waitForTimeout(900);
await keep(served, "serve.png");
await browser.close();
