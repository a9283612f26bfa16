// Of what resident memory consists at one moment, as far as the recording can tell.
import type { Memory } from "../../api/types.ts";

export interface MemoryPart {
  id: "live" | "holes" | "kept" | "files" | "recorder";
  label: string;
  definition: string;
  bytes: number;
  /** Name of a design token. */
  color: string;
}

/**
 * Parts that add up to the resident set; `undefined` where memory was not sampled.
 * The recorder's chunks are a mapped file, the rest of its memory is anonymous.
 */
export function memoryParts(memory: Memory, chunkBytes: number): MemoryPart[] | undefined {
  const { sample, pages } = memory;
  if (!sample) return undefined;
  const mapped = Math.max(0, sample.rss_bytes - sample.rss_anonymous_bytes);
  const chunks = Math.min(sample.recorder_bytes, chunkBytes, mapped);
  const own = Math.min(sample.recorder_bytes - chunks, sample.rss_anonymous_bytes);
  const anonymous = sample.rss_anonymous_bytes - own;
  // Blocks that nobody has written to take no memory: what is live may be more than what is resident.
  const live = Math.min(pages.used_bytes, anonymous);
  const holes = Math.min(Math.max(0, pages.bytes - pages.used_bytes), anonymous - live);
  return [
    {
      id: "live",
      label: "Live blocks",
      definition:
        "Requested bytes of live blocks; at most what is resident, blocks that were never written to are not.",
      bytes: live,
      color: "--live",
    },
    {
      id: "holes",
      label: "Between live blocks",
      definition:
        "The rest of the pages that hold a live block: free blocks, rounding and the allocator's own data. It cannot be given back while the block lives.",
      bytes: holes,
      color: "--match",
    },
    {
      id: "kept",
      label: "Kept, stacks, data",
      definition:
        "Anonymous memory in pages without a live block: what the allocator keeps for later, thread stacks, the program's own mappings and variables.",
      bytes: anonymous - live - holes,
      color: "--born",
    },
    {
      id: "files",
      label: "Code and files",
      definition: "Resident pages of mapped files and shared memory: the program, its libraries, data files.",
      bytes: mapped - chunks,
      color: "--rss",
    },
    {
      id: "recorder",
      label: "Recorder",
      definition: "The recorder's own memory, an estimate from above; it is not there when the program runs alone.",
      bytes: chunks + own,
      color: "--text-muted",
    },
  ];
}
