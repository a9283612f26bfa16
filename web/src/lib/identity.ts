// Which function: `name@file@module`, since two functions may have one name. The address of the page holds this, and
// the server's patterns understand it. A name alone means every function that has it.
import { exactly, quoted } from "./pattern.ts";

export interface Named {
  name: string;
  module?: string | null | undefined;
  file?: string | null | undefined;
  line?: number | null | undefined;
}

/** What stands for this function and no other of its name, as far as that is known. */
export function identityOf({ name, file, module }: Named): string {
  return file || module || name.includes("@") ? `${name}@${file ?? ""}@${module ?? ""}` : name;
}

/** Whether a function is the chosen one. */
export function isChosen(named: Named | undefined, chosen: string | undefined): boolean {
  if (!named || chosen === undefined) return false;
  return named.name === chosen || identityOf(named) === chosen;
}

/** The name in an identity. */
export function nameIn(chosen: string): string {
  const parts = apart(chosen);
  return parts ? parts.name : chosen;
}

/** A pattern that matches the chosen function and nothing else, at the server. */
export function patternOf(chosen: string): string {
  const parts = apart(chosen);
  if (!parts) return exactly(chosen);
  const { name, file, module } = parts;
  return `^${quoted(name)}@${quoted(file)}(:\\d+)?@${quoted(module)}$`;
}

function apart(chosen: string): { name: string; file: string; module: string } | undefined {
  const last = chosen.lastIndexOf("@");
  const front = chosen.slice(0, Math.max(0, last));
  // A path may have an `@` in one of its folders; names hardly ever do.
  const first = front.indexOf("@", 1);
  if (first < 0) return undefined;
  return { name: front.slice(0, first), file: front.slice(first + 1), module: chosen.slice(last + 1) };
}
