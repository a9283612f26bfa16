// Marks that a person adds afterwards: kept in this browser, by recording.
import { useMemo, useSyncExternalStore } from "react";

export interface Note {
  t: number;
  text: string;
}

const MOST = 200;
const listeners = new Set<() => void>();
const keyOf = (recording: string) => `heaptrace.notes.${recording}`;

/** Notes out of a text, in the order of time; whatever is none is dropped. */
export function parseNotes(text: string | null): Note[] {
  let value: unknown;
  try {
    value = JSON.parse(text ?? "[]");
  } catch {
    return [];
  }
  if (!Array.isArray(value)) return [];
  const notes = value.flatMap((item: unknown): Note[] => {
    if (typeof item !== "object" || item === null || !("t" in item) || !("text" in item)) return [];
    const { t, text: label } = item;
    return typeof t === "number" && Number.isFinite(t) && t >= 0 && typeof label === "string" && label !== ""
      ? [{ t, text: label.slice(0, 120) }]
      : [];
  });
  return notes.sort((a, b) => a.t - b.t).slice(0, MOST);
}

function read(recording: string): string | null {
  try {
    return localStorage.getItem(keyOf(recording));
  } catch {
    return null;
  }
}

export interface Notes {
  list: Note[];
  /** Whether the browser kept it. */
  add: (note: Note) => boolean;
  remove: (note: Note) => boolean;
}

/** The notes on a recording. Ids of recordings are those of one server: the caller chooses what to go by. */
export function useNotes(recording: string): Notes {
  const text = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      window.addEventListener("storage", listener);
      return () => {
        listeners.delete(listener);
        window.removeEventListener("storage", listener);
      };
    },
    () => read(recording),
  );
  return useMemo(() => {
    const list = parseNotes(text);
    const keep = (next: Note[]) => {
      try {
        localStorage.setItem(keyOf(recording), JSON.stringify(next));
      } catch {
        return false;
      }
      for (const listener of listeners) listener();
      return true;
    };
    return {
      list,
      add: (note) => keep(parseNotes(JSON.stringify([...list, note]))),
      remove: (note) => keep(list.filter((one) => one.t !== note.t || one.text !== note.text)),
    };
  }, [text, recording]);
}
