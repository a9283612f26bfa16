// The lower edge of the timeline: drag it, or use the arrow keys, and the tracks become higher or lower.
import { type KeyboardEvent, type PointerEvent, useRef } from "react";

const KEY = "heaptrace.timeline";
const LEAST = 0.8;
const MOST = 5;

/** How much higher than usual the tracks are in this browser. */
export function readHeightFactor(): number {
  try {
    const value = Number(localStorage.getItem(KEY) ?? "1");
    return Number.isFinite(value) ? clamp(value) : 1;
  } catch {
    return 1;
  }
}

/** Stores the factor, where the browser can store. */
export function writeHeightFactor(value: number): void {
  try {
    localStorage.setItem(KEY, String(value));
  } catch {
    // The height lasts as long as the page.
  }
}

function clamp(value: number): number {
  return Math.min(MOST, Math.max(LEAST, value));
}

export function HeightGrip({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  const drag = useRef<{ y: number; value: number } | null>(null);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 0.2 : event.key === "ArrowUp" ? -0.2 : 0;
    if (step === 0) return;
    onChange(clamp(value + step));
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    // biome-ignore lint/a11y/useSemanticElements: a rule cannot be dragged
    <div
      className="height-grip"
      role="separator"
      aria-orientation="horizontal"
      aria-label="Height of the timeline"
      aria-valuenow={Math.round(value * 100)}
      aria-valuemin={LEAST * 100}
      aria-valuemax={MOST * 100}
      tabIndex={0}
      title="Drag to make the tracks higher or lower"
      onKeyDown={onKeyDown}
      onPointerDown={(event: PointerEvent<HTMLDivElement>) => {
        drag.current = { y: event.clientY, value };
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event: PointerEvent<HTMLDivElement>) => {
        if (drag.current) onChange(clamp(drag.current.value + (event.clientY - drag.current.y) / 90));
      }}
      onPointerUp={() => {
        drag.current = null;
      }}
      onPointerCancel={() => {
        drag.current = null;
      }}
    />
  );
}
