// The page of `stepscope serve`: it asks the server what there is, and draws it.

import { render } from "preact";
import { App } from "./serve/app";
import { ask } from "./serve/ask";
import { isThere } from "./serve/connection";
import type { SceneData } from "./messages";
import "./timeline/timeline.css";
import "./report.css";
import "./serve/serve.css";

/** While a page is open the server does not take itself for idle, and one that stopped is noticed. */
const ALIVE_MS = 15_000;

const page = document.getElementById("page")!;
ask<SceneData>("scene").then((data) => {
  document.title = `${data.profiles.map(({ source }) => source).join(" | ")} · stepscope`;
  page.textContent = "";
  render(<App data={data} />, page);
  setInterval(() => { if (!document.hidden && isThere()) void ask("alive").catch(() => undefined); }, ALIVE_MS);
}).catch((reason: Error) => { page.textContent = reason.message; });
