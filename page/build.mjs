// Builds the pages: of each, one script and one style sheet, which the Python package carries.
// With a folder as argument, builds there instead: the test compares the two.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const committed = fileURLToPath(new URL("../src/stepscope/render/html/bundle", import.meta.url));
const { metafile } = await build({
  absWorkingDir: fileURLToPath(new URL(".", import.meta.url)),
  entryPoints: { report: "src/main.tsx", serve: "src/serve.tsx" },
  outdir: process.argv[2] ?? committed,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome109", "firefox113", "safari16.4"],
  charset: "utf8",
  legalComments: "inline",
  metafile: true,
});
for (const [file, { bytes }] of Object.entries(metafile.outputs)) console.log(`${file} ${bytes}`);
