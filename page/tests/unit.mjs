// Runs the tests of modules that need no page: tests/unit, bundled with what they import, under Node's own runner.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL("unit", import.meta.url));
const outdir = mkdtempSync(fileURLToPath(new URL("../node_modules/.unit-", import.meta.url)));
try {
  await build({
    entryPoints: readdirSync(here).filter((name) => name.endsWith(".test.mjs")).map((name) => join(here, name)),
    outdir, bundle: true, platform: "node", format: "esm", outExtension: { ".js": ".mjs" }, sourcemap: "inline", logLevel: "error",
  });
  const tests = readdirSync(outdir).filter((name) => name.endsWith(".test.mjs")).map((name) => join(outdir, name));
  process.exitCode = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...tests], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(outdir, { recursive: true, force: true });
}
