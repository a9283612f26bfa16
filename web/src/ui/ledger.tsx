// Resident memory in rows that add up to it: a bar, and the table beside it.
import { useState } from "react";
import type { Memory } from "../api/types.ts";
import { formatBytes, formatExact, formatPercent, formatTimes } from "../lib/format.ts";
import { childName, filledRows, ledgerText } from "../lib/ledger.ts";
import type { Search } from "./search.tsx";
import { Term } from "./term.tsx";
import "./ledger.css";

type Ledger = Pick<Memory, "rows" | "rss_bytes" | "live_bytes" | "knows_all_blocks">;

export function LedgerBar({
  ledger,
  lit,
  light,
}: {
  ledger: Ledger;
  lit?: string | undefined;
  light?: (key?: string) => void;
}) {
  const rss = Math.max(1, ledger.rss_bytes ?? 0);
  return (
    <div className="memory-bar" aria-hidden="true" onPointerLeave={() => light?.()}>
      {filledRows(ledger.rows ?? []).map((row) => {
        const { label, color } = ledgerText(row.key, ledger.knows_all_blocks);
        return (
          <i
            key={row.key}
            data-key={row.key}
            data-lit={lit === row.key || undefined}
            data-basis={row.basis}
            title={`${label}: ${formatBytes(row.bytes)}, ${formatPercent(row.bytes / rss)}, ${row.basis}`}
            style={{ width: `${(100 * row.bytes) / rss}%`, background: `var(${color})` }}
            onPointerEnter={() => light?.(row.key)}
          />
        );
      })}
    </div>
  );
}

export function LedgerTable({
  ledger,
  lit,
  light,
  search,
}: {
  ledger: Ledger;
  lit?: string | undefined;
  light?: (key?: string) => void;
  /** Rows and parts that it finds are marked, and parts are shown. */
  search?: Search;
}) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const rss = Math.max(1, ledger.rss_bytes ?? 0);
  const toggle = (key: string) => {
    const next = new Set(open);
    if (!next.delete(key)) next.add(key);
    setOpen(next);
  };
  return (
    <table className="small-table memory-parts">
      <thead>
        <tr>
          <th>What</th>
          <th className="numeric">Resident</th>
          <th className="numeric">% of RSS</th>
          <th>Found</th>
        </tr>
      </thead>
      {filledRows(ledger.rows ?? []).map((row) => {
        const { label, definition, color } = ledgerText(row.key, ledger.knows_all_blocks);
        const children = (row.children ?? []).filter((child) => child.bytes > 0);
        const isFound = (...texts: string[]) => (search?.active && search.hit(...texts)) || undefined;
        const isOpen = open.has(row.key) || children.some((child) => isFound(childName(child)));
        return (
          <tbody key={row.key}>
            <tr
              data-part={row.key}
              data-lit={lit === row.key || undefined}
              data-match={isFound(label)}
              data-basis={row.basis}
              onPointerEnter={() => light?.(row.key)}
              onPointerLeave={() => light?.()}
            >
              <td>
                {children.length > 0 ? (
                  <button
                    type="button"
                    className="disclose"
                    aria-expanded={isOpen}
                    aria-label={`Parts of ${label}`}
                    onClick={() => toggle(row.key)}
                  >
                    {isOpen ? "▾" : "▸"}
                  </button>
                ) : (
                  <span className="disclose" />
                )}
                <i style={{ background: `var(${color})` }} /> <Term definition={definition}>{label}</Term>
              </td>
              <td className="numeric" title={formatExact(row.bytes, "bytes")}>
                {formatBytes(row.bytes)}
              </td>
              <td className="numeric">{formatPercent(row.bytes / rss)}</td>
              <td className="muted">{row.basis}</td>
            </tr>
            {isOpen &&
              children.map((child) => (
                <tr key={`${child.key} ${child.name}`} data-child={row.key} data-match={isFound(childName(child))}>
                  <td className="child">{childName(child)}</td>
                  <td className="numeric">{formatBytes(child.bytes)}</td>
                  <td className="numeric">{formatPercent(child.bytes / rss)}</td>
                  <td className="muted">{child.key}</td>
                </tr>
              ))}
          </tbody>
        );
      })}
      <tbody>
        <tr data-part="rss">
          <td>
            <span className="disclose" />
            <Term definition="Resident memory: the sum of the rows. The recorder's own is a row of it.">
              Resident (RSS)
            </Term>
          </td>
          <td className="numeric" title={formatExact(ledger.rss_bytes ?? 0, "bytes")}>
            <b>{formatBytes(ledger.rss_bytes ?? 0)}</b>
          </td>
          <td className="numeric">
            {(ledger.live_bytes ?? 0) > 0 && `${formatTimes(rss / (ledger.live_bytes ?? 1))} live`}
          </td>
          <td />
        </tr>
      </tbody>
    </table>
  );
}
