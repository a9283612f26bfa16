// A line over all tracks at one instant, with its name.
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
  const grip = kind === "a" || kind === "b" ? kind : undefined;
  return (
    <div className="flag" data-kind={kind} data-left={isTurned(scale, x) || undefined} style={{ left: x }}>
      {text && (room ?? LEAST_ROOM) >= LEAST_ROOM && (
        <span data-grip={grip} style={room === undefined ? undefined : { maxWidth: room }}>
          {text}
        </span>
      )}
    </div>
  );
}
