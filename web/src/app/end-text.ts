// How a recording ended, in words.
import type { Info } from "../api/types.ts";

const END_TEXT: Record<Info["end"], string> = {
  running: "running",
  exit: "ended",
  exec: "replaced by exec",
  killed: "killed",
  stopped: "recording stopped",
  detached: "detached",
  disk_full: "disk full",
  unknown: "no end found",
};

export function endText(info: Info): string {
  return `${END_TEXT[info.end]}${!info.complete && info.end !== "killed" && info.end !== "running" ? " · incomplete" : ""}`;
}
