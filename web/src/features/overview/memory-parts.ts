// Of what resident memory consists at one moment, as rows of a table and as pieces of a bar.
import type { Memory } from "../../api/types.ts";
import { allocatedBy, frameName } from "../../lib/stack.ts";

export interface MemoryPart {
  id: "live" | "rest" | "untouched" | "other" | "files" | "recorder";
  label: string;
  definition: string;
  /** The parts add up to the resident set; what is not resident is negative. */
  bytes: number;
  /** Of the bar: what is not resident is taken from the live blocks, then from the rest of their pages. */
  drawn: number;
  /** Name of a design token. */
  color: string;
}

/** `undefined` where memory was not sampled. */
export function memoryParts({ resident }: Memory): MemoryPart[] | undefined {
  if (!resident) return undefined;
  const untouched = resident.untouched_bytes;
  const fromLive = Math.min(untouched, resident.live_bytes);
  const parts: MemoryPart[] = [
    {
      id: "live",
      label: "Live blocks",
      definition: "Requested bytes of live blocks.",
      bytes: resident.live_bytes,
      drawn: resident.live_bytes - fromLive,
      color: "--live",
    },
    {
      id: "rest",
      label: "Between live blocks",
      definition:
        "The rest of the pages that hold a live block: free blocks, rounding and the allocator's own data. It cannot be given back while the block lives.",
      bytes: resident.page_rest_bytes,
      drawn: Math.max(0, resident.page_rest_bytes - (untouched - fromLive)),
      color: "--match",
    },
    {
      id: "untouched",
      label: "Of these not touched",
      definition: "Pages of live blocks that the program has not written to yet take no memory: about so much.",
      bytes: -untouched,
      drawn: 0,
      color: "--line-strong",
    },
    {
      id: "other",
      label: "Kept, stacks, data",
      definition:
        "Memory without a file in pages without a live block: what the allocator keeps for later, stacks, the modules' variables, what the program mapped by itself.",
      bytes: resident.other_anonymous_bytes,
      drawn: resident.other_anonymous_bytes,
      color: "--allocated",
    },
    {
      id: "files",
      label: "Code and files",
      definition: "Resident pages of mapped files and shared memory: the program, its libraries, data files.",
      bytes: resident.files_bytes,
      drawn: resident.files_bytes,
      color: "--rss",
    },
    {
      id: "recorder",
      label: "Recorder",
      definition: "The recorder's own memory, an estimate from above; it is not there when the program runs alone.",
      bytes: resident.recorder_bytes,
      drawn: resident.recorder_bytes,
      color: "--text-muted",
    },
  ];
  return parts.filter((part) => part.id !== "untouched" || part.bytes !== 0);
}

export interface MappedBy {
  /** The function; nothing for what was there before recording began, and for what is beyond the list. */
  name: string | undefined;
  module: string | undefined;
  mappedBytes: number;
  /** Of it live blocks. */
  usedBytes: number;
}

/** Who mapped address space, by the innermost function of no standard library, most first. */
export function mappedBy({ mappers }: Memory): MappedBy[] {
  const found = new Map<string, MappedBy>();
  for (const { stack, mapped_bytes, used_bytes } of mappers) {
    const { by } = allocatedBy(stack);
    const name = by && frameName(by);
    const key = `${name} ${by?.module}`;
    const entry = found.get(key) ?? { name, module: by?.module ?? undefined, mappedBytes: 0, usedBytes: 0 };
    entry.mappedBytes += mapped_bytes;
    entry.usedBytes += used_bytes;
    found.set(key, entry);
  }
  return [...found.values()].sort((a, b) => b.mappedBytes - a.mappedBytes);
}
