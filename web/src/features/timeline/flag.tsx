// A line over all tracks at one instant, with its name.
import { type Scale, toPixel } from "./layout.ts";

type FlagKind = "peak" | "at" | "mark" | "note" | "a" | "b" | "hover";

export function Flag({ scale, t, kind, text }: { scale: Scale; t: number; kind: FlagKind; text: string }) {
  const x = toPixel(scale, t);
  if (x < scale.left - 0.5 || x > scale.left + scale.width + 0.5) return null;
  const grip = kind === "a" || kind === "b" ? kind : undefined;
  return (
    <div
      className="flag"
      data-kind={kind}
      data-left={x > scale.left + scale.width - 80 || undefined}
      style={{ left: x }}
    >
      {text && <span data-grip={grip}>{text}</span>}
    </div>
  );
}
