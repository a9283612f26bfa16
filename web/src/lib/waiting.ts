// How much the program waited for the recorder. Many threads wait longer together than the program ran: a part of the
// runtime would be more than all of it, so from there on the number of threads is said that waited on average.
import { formatPercent, formatShortCount } from "./format.ts";

const threadsOf = (part: number): string => formatShortCount(part < 10 ? part : Math.round(part));

/** `part`: what all threads waited, of the runtime. */
export function shortWait(part: number): string {
  return part <= 1 ? `waited ${formatPercent(part)}` : `${threadsOf(part)} threads waiting`;
}

/** The same behind how long they waited. */
export function waitOf(part: number): string {
  return part <= 1 ? `${formatPercent(part)} of the runtime` : `${threadsOf(part)} threads at a time on average`;
}
