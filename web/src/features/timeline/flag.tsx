// A line over all tracks at one instant, with its name.
import { EDGE } from "../../ui/time-chart.tsx";
import { isTurned, LEAST_ROOM, type Scale, toPixel } from "./layout.ts";

type FlagKind = "peak" | "at" | "mark" | "note" | "a" | "b" | "hover";

interface FlagProps {
  scale: Scale;
  t: number;
  kind: FlagKind;
  text: string;
  /** Pixels that there are for the name. */
  room?: number | undefined;
}

export function Flag({ scale, t, kind, text, room }: FlagProps) {
  const x = toPixel(scale, t);
  if (x < scale.left - 0.5 || x > scale.left + scale.width + 0.5) return null;
  // As a part of the surface: paper is wider or narrower than the screen, and is laid out before anything is drawn anew.
  const left = `${(x / (scale.left + scale.width + EDGE)) * 100}%`;
  const grip = kind === "a" || kind === "b" ? kind : undefined;
  return (
    <div className="flag" data-kind={kind} data-left={isTurned(scale, x) || undefined} style={{ left }}>
      {text && (room ?? LEAST_ROOM) >= LEAST_ROOM && (
        <span data-grip={grip} style={room === undefined ? undefined : { maxWidth: room }}>
          {text}
        </span>
      )}
    </div>
  );
}
