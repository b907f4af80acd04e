// Builds the two bundles into the Python package. `node build.mjs --out DIR` builds elsewhere (the check does).
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const flag = process.argv.indexOf("--out");
const show = flag > 0 ? process.argv[flag + 1] : join(here, "../src/unslow/show");
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};
const bundles = [
  ["src/report.ts", "report/static/report.js"],
  ["src/report.css", "report/static/report.css"],
  ["src/console/app.ts", "console/static/app.js"],
  ["src/console/app.css", "console/static/app.css"],
];
for (const [entry, out] of bundles) {
  await build({ ...common, entryPoints: [entry], outfile: join(show, out), format: entry.endsWith(".ts") ? "iife" : undefined });
}
await mkdir(join(show, "console/static"), { recursive: true });
for (const name of ["index.html", "mark.svg"]) {
  await copyFile(join(here, "src/console", name), join(show, "console/static", name));
}
