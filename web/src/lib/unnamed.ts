// Bytes in functions that have no name, and what would give them one.
import type { Functions, Module } from "../api/types.ts";
import { fileName } from "./names.ts";

export interface Unnamed {
  /** Of the total. */
  part: number;
  /** File names of modules, the one with most bytes first. */
  modules: string[];
}

/** Of an answer whose search is for addresses in place of names: its rows are the largest of them. */
export function unnamedOf(functions: Functions): Unnamed {
  const by = new Map<string, number>();
  for (const row of functions.rows) {
    if (!/^0x[0-9a-f]+$/.test(row.name) || row.flat <= 0) continue;
    if (row.module) by.set(row.module, (by.get(row.module) ?? 0) + row.flat);
  }
  const modules = [...by].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const unnamed = functions.total_matched ?? 0;
  return { part: functions.total > 0 ? unnamed / functions.total : 0, modules };
}

export interface Advice {
  module: string;
  why: string;
  doing: string;
}

/** Why the modules with most unnamed bytes have no names, and what to do. */
export function adviceOn(unnamed: Unnamed, modules: readonly Module[], most = 2): Advice[] {
  return unnamed.modules.slice(0, most).map((name) => {
    const module = modules.find((one) => fileName(one.path) === name || one.path === name);
    return { module: name, ...reasonOf(module) };
  });
}

function reasonOf(module: Module | undefined): Omit<Advice, "module"> {
  switch (module?.symbols) {
    case "mismatch":
      // Nothing to compare a file here with, as in recordings of other tools.
      if (!module.build_id) {
        return {
          why: "has no build id in the recording, so no file can be told to be the recorded one",
          doing: "record again, with a file that was linked with --build-id",
        };
      }
      return {
        why: "is not the file that was recorded (built again, or updated)",
        doing: "put the recorded file back, or record again; “heaptrace bundle” keeps the files with a recording",
      };
    case "missing":
      return {
        why: "is not on this machine",
        doing: "open the recording where the file is, or use “heaptrace bundle” there",
      };
    default:
      return {
        why: "is stripped",
        doing: "install its debug symbols (package …-dbgsym or …-debuginfo), or start the server with --debuginfod",
      };
  }
}
