import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { defineConfig, type Plugin } from "vite";

const OURS = ["index.html", "package-lock.json", "package.json", "pages.json", "public", "src", "tsconfig.json", "vite.config.ts"];
const EXAMPLES = "src/editor/examples.ts"; // imports files of the repository that the build does not have
const ASSETS = "../assets";
const API = "http://127.0.0.1:5398"; // of `peloton up`

// Written next to the build: the hash of what it was built from, by which a test knows that it is current.
function stamp(): Plugin {
  return {
    name: "stamp",
    closeBundle() {
      const hash = createHash("sha256");
      for (const path of [...OURS.flatMap(files), ...examples()].sort()) hash.update(`${path}\0`).update(readFileSync(path)).update("\0");
      writeFileSync(join(ASSETS, "built-from.txt"), `${hash.digest("hex")}\n`);
    },
  };
}

// Licences of all packages that the bundle may contain: those of package-lock.json that are not for development alone.
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle(_, bundle) {
      const packages: Record<string, { dev?: boolean; version?: string; license?: string }> =
        JSON.parse(readFileSync("package-lock.json", "utf-8")).packages;
      const shipped = Object.keys(packages).filter((path) => path && !packages[path]!.dev).sort();
      const folders = new Set(shipped.map((path) => `/${path}/`));
      for (const chunk of Object.values(bundle)) {
        for (const id of chunk.type === "chunk" ? chunk.moduleIds : []) {
          const folder = /^.*?(\/node_modules\/(?:@[^/]+\/)?[^/]+\/)/.exec(id)?.[1];
          if (folder && !folders.has(folder)) this.error(`${folder} is in the bundle, but for development alone: make it a dependency`);
        }
      }
      const parts = shipped.map((path) => {
        const file = ["LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE"].map((name) => join(path, name)).find(existsSync);
        if (!file) return this.error(`${path} has no licence file`);
        const { version, license } = packages[path]!;
        return `=== ${path.replace("node_modules/", "")} ${version} (${license})\n\n${readFileSync(file, "utf-8").trim()}\n`;
      });
      this.emitFile({ type: "asset", fileName: "THIRD_PARTY_LICENSES.txt", source: parts.join("\n") });
    },
  };
}

function examples(): string[] {
  const imports = readFileSync(EXAMPLES, "utf-8").matchAll(/"([^"]+)\?raw"/g);
  return [...imports].map(([, path]) => join(dirname(EXAMPLES), path!));
}

function files(path: string): string[] {
  if (path.includes(".") && !path.startsWith(".")) return [path];
  return readdirSync(path, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(".", join(entry.parentPath, entry.name)));
}

export default defineConfig({
  build: { outDir: ASSETS, emptyOutDir: true, target: "es2022", modulePreload: { polyfill: false } },
  plugins: [licences(), stamp()],
  server: { proxy: { "/api": API, "/files": API, "/live": API, "/logs": API, "/schemas": API, "/settings.json": API, "/terminal": { target: API, ws: true } } },
});
