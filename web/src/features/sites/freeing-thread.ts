import { formatPercent } from "../../lib/format.ts";

/** Behind “12 blocks, ”: how many of the blocks were freed by the threads that had allocated them. */
export function freeingThread(blocks: number, sameThread: number): string {
  const them = blocks === 1 ? "it" : "them";
  if (sameThread === 0) return `by a thread that had not allocated ${them}`;
  const part = sameThread === blocks ? "" : `${formatPercent(sameThread / blocks)} of them `;
  return `${part}by the thread that had allocated ${them}`;
}
