// The ledger of resident memory as rows with names, definitions and colours: the same in every view.
import type { LedgerRow } from "../api/types.ts";

export interface LedgerText {
  label: string;
  definition: string;
  /** Name of a design token. */
  color: string;
}

const TEXT: Record<string, LedgerText> = {
  live: {
    label: "Live blocks",
    definition: "Requested bytes of live blocks, where their pages are in memory.",
    color: "--live",
  },
  rounding: {
    label: "Rounding, headers",
    definition: "Headers of live blocks, and sizes rounded up, by the allocator's rules.",
    color: "--layer-1",
  },
  holes: {
    label: "Holes between live blocks",
    definition:
      "The rest of pages that hold a live block: fragmentation. It cannot be given back while the block lives; the Pins view says whose blocks these are.",
    color: "--match",
  },
  free_pages: {
    label: "Free pages",
    definition: "Pages of the allocator without a live block, which it keeps for later.",
    color: "--layer-4",
  },
  free_top: {
    label: "Free top",
    definition: "Free pages above the last live block of a heap, which glibc gives back by itself.",
    color: "--layer-6",
  },
  allocator_metadata: {
    label: "Allocator's own",
    definition: "The allocator's own mappings, where it is not glibc.",
    color: "--layer-7",
  },
  stacks: { label: "Stacks", definition: "Stacks of threads.", color: "--freed" },
  mappings: {
    label: "Mapped by the program",
    definition: "What the program mapped itself with mmap, beside the allocator.",
    color: "--allocated",
  },
  runtime_heaps: {
    label: "Heap of a runtime",
    definition: "What the runtime of a language mapped for its own heap.",
    color: "--layer-8",
  },
  modules: {
    label: "Code and data of modules",
    definition: "The program and its libraries: code, constants and variables.",
    color: "--rss",
  },
  files: { label: "Files, shared memory", definition: "Other mapped files, and shared memory.", color: "--layer-9" },
  recorder: {
    label: "Recorder",
    definition: "The recorder's own memory; it is not there when the program runs alone.",
    color: "--text-muted",
  },
  other: {
    label: "Other",
    definition: "Memory without a file that is none of these.",
    color: "--layer-5",
  },
  unexplained: {
    label: "Unexplained",
    definition: "What the kernel counted more than was found page by page.",
    color: "--line-strong",
  },
};

/** Of an attach, a dormant or a paused recording: some blocks were never seen. */
const NOT_RECORDED: Pick<LedgerText, "label" | "definition"> = {
  label: "Without a recorded block",
  definition:
    "Pages of the heap without a block that was recorded: free, or with blocks from before recording began or from when it was off.",
};

export function ledgerText(key: string, knowsAllBlocks = true): LedgerText {
  const text = TEXT[key];
  if (text && !knowsAllBlocks && (key === "free_pages" || key === "free_top")) return { ...text, ...NOT_RECORDED };
  return text ?? { label: key.replaceAll("_", " "), definition: "", color: "--layer-rest" };
}

const BESIDE: Record<string, string> = {
  swapped: "Swapped out",
  live_untouched: "Live blocks never touched, or given back",
  free_not_resident: "Free and not resident",
  huge_pages: "Resident in huge pages",
  lazy_free: "Given back, not yet taken (MADV_FREE)",
  page_tables: "Page tables",
};

/** What a figure beside resident memory is. */
export function besideText(key: string): string {
  return BESIDE[key] ?? key.replace(/^cgroup_/, "control group: ").replaceAll("_", " ");
}

/** The rows that have bytes, in the ledger's order. */
export function filledRows(rows: readonly LedgerRow[]): LedgerRow[] {
  return rows.filter((row) => row.bytes > 0);
}

/** What a part of a row is called. */
export function childName(row: LedgerRow): string {
  return row.name ?? ledgerText(row.key).label;
}
