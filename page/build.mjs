// Builds the pages: of each, one script and one style sheet, which the Python package carries; beside them, what of others
// is in them, and on which terms. With a folder as argument, builds there instead: the test compares the two.
import { build } from "esbuild";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = process.argv[2] ?? fileURLToPath(new URL("../src/stepscope/render/html/bundle", import.meta.url));
const { metafile, outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: { report: "src/main.tsx", serve: "src/serve.tsx" },
  outdir: folder,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome109", "firefox113", "safari16.4"],
  charset: "utf8",
  legalComments: "inline",
  metafile: true,
  write: false,
});

const names = Object.keys(metafile.inputs).flatMap((file) => file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1] ?? []);
const packages = [...new Set(names)].sort().map((name) => {
  const { version, license } = JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));
  return { name, version, license, terms: readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim() };
});
// Packages of one author on the same terms share one copy of them.
const shared = new Map();
for (const { name, version, terms } of packages) shared.set(terms, [...(shared.get(terms) ?? []), `${name} ${version}`]);
const licenses = [...shared].map(([terms, of]) => `${of.join(", ")}\n\n${terms}\n`);
const notice = `The page contains these packages, on their authors' terms:\n\n${licenses.join(`\n${"-".repeat(80)}\n\n`)}`;
const components = {
  bomFormat: "CycloneDX",
  specVersion: "1.6",
  version: 1,
  metadata: { component: { type: "library", name: "stepscope-page", "bom-ref": "stepscope-page" } },
  components: packages.map(({ name, version, license }) => ({
    type: "library",
    "bom-ref": `pkg:npm/${name}@${version}`,
    name,
    version,
    licenses: [{ license: { id: license } }],
    purl: `pkg:npm/${name}@${version}`,
  })),
};

mkdirSync(folder, { recursive: true });
const written = {
  "licenses.txt": notice,
  "components.cdx.json": `${JSON.stringify(components, null, 1)}\n`,
  // Every report is a copy of them: the terms go with it.
  ...Object.fromEntries(
    outputFiles.map(({ path, text }) => [basename(path), path.endsWith(".js") ? `/*\n${notice}*/\n${text}` : text]),
  ),
};
for (const [name, text] of Object.entries(written)) {
  writeFileSync(join(folder, name), text);
  console.log(`${name} ${Buffer.byteLength(text)}`);
}
