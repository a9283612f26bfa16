// Names of C++ as a programmer writes them.
import { expect, test } from "vitest";
import { bareName } from "../../src/lib/names.ts";
import { readPattern, serverPattern } from "../../src/lib/pattern.ts";
import { plainTypes } from "../../src/lib/plain-types.ts";
import { boxName } from "../../src/ui/flame/box-text.ts";

const STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";

test.each([
  [STRING, "std::string"],
  [`void fold<${STRING} >(int)`, "void fold<std::string>(int)"],
  [`${STRING}::_M_construct(unsigned long, char)`, "std::string::_M_construct(unsigned long, char)"],
  ["std::basic_string<wchar_t, std::char_traits<wchar_t>, std::allocator<wchar_t> >::clear()", "std::wstring::clear()"],
  ["std::vector<double, std::allocator<double> >::push_back(double&&)", "std::vector<double>::push_back(double&&)"],
  [
    `std::map<${STRING}, int, std::less<${STRING} >, std::allocator<std::pair<${STRING} const, int> > >::at`,
    "std::map<std::string, int>::at",
  ],
  ["std::unique_ptr<char [], std::default_delete<char []> >::get", "std::unique_ptr<char []>::get"],
  ["std::queue<int, std::deque<int, std::allocator<int> > >::push", "std::queue<int>::push"],
  ["std::__cxx11::list<int, std::allocator<int> >::sort", "std::list<int>::sort"],
])("%s", (full, plain) => {
  expect(plainTypes(full)).toBe(plain);
});

test.each([
  // What the program chose itself tells two types apart.
  "std::vector<int, arena<int>>::push_back",
  "std::map<int, int, std::greater<int>>::at",
  "std::basic_string<char, no_case, std::allocator<char>>::find",
  "std::allocator_traits<std::allocator<double>>::allocate",
  "std::unique_ptr<int, closer>::reset",
  // No types of C++, and brackets that are none.
  "<std::fs::File as std::io::Read>::read",
  "std::ops::Fn() -> std::string::String",
  "bool std::operator<(int, int)",
  "std::function<void (int)>::operator()",
  "std::a<b",
  "std::a>b",
  "std::(]",
  `std::${"a<".repeat(2000)}`,
])("%s stays", (name) => {
  expect(plainTypes(name)).toBe(name);
});

test("frames and tables have the plain name", () => {
  const name = `void fold<${STRING} >(std::map<${STRING}, ${STRING}, std::less<${STRING} >, std::allocator<std::pair<${STRING} const, ${STRING} > > >&, int)`;
  expect(boxName(name)).toBe("fold<std::string>");
  expect(bareName(name)).toBe("fold<std::string>");
});

test("a search for the plain name of a string finds the full one, here and at the server", () => {
  const name = `void fold<${STRING} >(int)`;
  for (const text of ["fold<std::string>", "fold<std::string", "FOLD<std::string>|fold<std::string>"]) {
    const pattern = readPattern(text);
    expect(pattern.kind === "valid" && pattern.test(name)).toBe(true);
    expect(new RegExp(serverPattern(text).replace("(?i)", ""), "i").test(name)).toBe(true);
  }
  const view = readPattern("std::string_view");
  expect(view.kind === "valid" && view.test(name)).toBe(false);
  expect(serverPattern("std::string_view")).toBe("(?i)std::string_view");
});
