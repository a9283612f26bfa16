import { expect, test } from "vitest";
import { fileName, location, rowName, shortName } from "../../src/lib/names.ts";
import { exactly, readPattern, serverPattern, withOtherCase } from "../../src/lib/pattern.ts";

test("short names are left alone", () => {
  expect(shortName("operator<<(std::ostream&)", 80)).toBe("operator<<(std::ostream&)");
});

test("long names lose their nested lists first", () => {
  const name = "std::map<std::string, std::vector<std::pair<int, long>>>::emplace(std::string const&, int)";
  expect(shortName(name, 80).length).toBeLessThanOrEqual(80);
  expect(shortName(name, 80)).toContain("std::map<");
  expect(shortName(name, 30)).toBe("std::map<…>::emplace(…)");
});

test("the type of a Rust method stays", () => {
  const name = "<alloc::collections::btree::map::BTreeMap<K, V, A> as core::iter::FromIterator<(K, V)>>::from_iter";
  expect(shortName(name, 90)).toMatch(/^<alloc::collections.*as core.*::from_iter$/);
});

test("operators are not brackets", () => {
  const padding = "x".repeat(60);
  expect(shortName(`Widget::operator()(${padding})`, 40)).toBe("Widget::operator()(…)");
  expect(shortName(`Widget::operator<<(${padding})`, 40)).toBe("Widget::operator<<(…)");
  expect(shortName(`Widget::operator->(${padding})`, 40)).toBe("Widget::operator->(…)");
});

test("ten thousand characters become few, whatever they are", () => {
  for (const name of [
    "a".repeat(10_000),
    "<".repeat(10_000),
    ">".repeat(10_000),
    "f(".repeat(5000),
    `${"A<".repeat(3000)}x${">".repeat(3000)}`,
  ]) {
    expect(shortName(name, 160).length).toBeLessThanOrEqual(160);
  }
});

test("places", () => {
  expect(fileName("/a/b/c.rs")).toBe("c.rs");
  expect(location("/a/b.c", 12)).toBe("b.c:12");
  expect(location("/a/b.c", null)).toBe("b.c");
  expect(location(null, 3)).toBeUndefined();
});

test("patterns", () => {
  const name = "<Vec<T> as Drop>::drop (a+b)*[c] {x|y} \\ ^$.?";
  const read = readPattern(exactly(name));
  expect(read.kind === "valid" && read.test(name)).toBe(true);
  expect(read.kind === "valid" && read.test(`${name}s`)).toBe(false);
  expect(readPattern("(").kind).toBe("invalid");
  expect(readPattern("").kind).toBe("none");
  const small = readPattern("vec");
  expect(small.kind === "valid" && small.test("Vec::push")).toBe(true);
  const capital = readPattern("Vec");
  expect(capital.kind === "valid" && capital.test("vec")).toBe(false);
  expect(serverPattern("vec")).toBe("(?i)vec");
});

test("the rule for capitals can be turned round, and is the server's, too", () => {
  const finds = (text: string, name: string) => {
    const pattern = readPattern(text);
    return pattern.kind === "valid" && pattern.test(name);
  };
  expect([finds("Parse", "parse"), finds("(?i)Parse", "parse"), finds("(?-i)parse", "Parse")]).toEqual([
    false,
    true,
    false,
  ]);
  expect(["Parse", "(?i)Parse", "parse", "(?-i)parse"].map(withOtherCase)).toEqual([
    "(?i)Parse",
    "Parse",
    "(?-i)parse",
    "parse",
  ]);
  expect(["Parse", "(?i)Parse", "parse", "(?-i)parse"].map(serverPattern)).toEqual([
    "Parse",
    "(?i)Parse",
    "(?i)parse",
    "parse",
  ]);
});

test("a row says which file's code it is where the name does not", () => {
  expect(rowName("<module>", "/srv/app/load.py")).toBe("<module> load.py");
  expect(rowName("<lambda>", null)).toBe("<lambda>");
  expect(rowName("Cache::insert(int)", "/srv/cache.cpp")).toBe("Cache::insert");
});
