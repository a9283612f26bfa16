// A note that the first side of a comparison was scaled, and by how much.
import { formatTimes } from "../../lib/format.ts";

export function ScaledNote({ factor }: { factor: number | null | undefined }) {
  if (factor === null || factor === undefined) return null;
  return <span className="muted">A was scaled: {formatTimes(factor)}</span>;
}
