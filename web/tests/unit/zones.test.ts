// The layers of the page: app → features → ui → api, lib. A feature never imports a feature, lib imports only types of api.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { expect, test } from "vitest";

const SRC = resolve(import.meta.dirname, "../../src");

const MAY_IMPORT: Record<string, readonly string[]> = {
  app: ["app", "features", "ui", "api", "lib"],
  features: ["ui", "api", "lib"],
  ui: ["ui", "api", "lib"],
  api: ["api", "lib"],
  lib: ["lib"],
};

function files(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.tsx?$/.test(name))
    .map((name) => join(folder, name));
}

interface Import {
  from: string;
  to: string;
  typeOnly: boolean;
}

function imports(): Import[] {
  return files(SRC).flatMap((file) => {
    const text = readFileSync(file, "utf8");
    const found = [
      ...text.matchAll(/^(import|export)\s+(type\s+)?[^;]*?from\s+"(\.[^"]+)"/gm),
      ...text.matchAll(/(import)()\s*\(?\s*"(\.[^"]+)"/g),
    ];
    return found.map((match) => ({
      from: relative(SRC, file),
      to: relative(SRC, resolve(dirname(file), match[3] ?? "")),
      typeOnly: match[2] !== undefined && match[2] !== "",
    }));
  });
}

test("imports only point down", () => {
  const seen = imports();
  expect(seen.length).toBeGreaterThan(100);
  const wrong = seen.filter(({ from, to, typeOnly }) => {
    const [zone = "", feature] = from.split("/");
    const [target = "", other] = to.split("/");
    if (!(zone in MAY_IMPORT)) return false;
    if (zone === "features" && target === "features") return feature !== other;
    if (zone === "lib" && target === "api") return !typeOnly;
    return !(MAY_IMPORT[zone] ?? []).includes(target);
  });
  expect(wrong).toEqual([]);
});

test("nothing is asked of any other machine, and nothing is put in as HTML", () => {
  for (const file of [...files(SRC), resolve(SRC, "../index.html")]) {
    const text = readFileSync(file, "utf8");
    expect(text.replaceAll("http://www.w3.org/2000/svg", ""), file).not.toMatch(/https?:\/\//);
    expect(text, file).not.toMatch(
      /dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/,
    );
  }
});

test("files stay small enough to be read", () => {
  for (const file of files(SRC)) {
    if (file.endsWith("schema.ts")) continue;
    expect(readFileSync(file, "utf8").split("\n").length, relative(SRC, file)).toBeLessThanOrEqual(480);
  }
});
