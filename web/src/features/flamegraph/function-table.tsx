// Functions beside the flame graph, of the same window and filter, with the same selection; below them who calls the
// selected one, and what it calls.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Flamegraph, FunctionRow, Functions } from "../../api/types.ts";
import { buildTree, callersOf } from "../../lib/flame-tree.ts";
import { formatExact, formatPercent, formatValue } from "../../lib/format.ts";
import { identityOf, isChosen, nameIn, patternOf } from "../../lib/identity.ts";
import { shortName } from "../../lib/names.ts";
import { readPattern, serverPattern } from "../../lib/pattern.ts";
import { Share } from "../../ui/controls.tsx";
import { type Column, DataTable } from "../../ui/data-table.tsx";
import { boxName } from "../../ui/flame/box-text.ts";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { Answer } from "../../ui/states.tsx";

const LIMIT = 500;
/** The widest callers and callees are named. */
const NEIGHBOURS = 12;

export function FunctionTable() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const functionMenu = useFunctionMenu();
  const pattern = readPattern(search.q ?? "");
  const query = useQuery(
    documentQuery(subject, "functions", {
      ...request.metric,
      ...request.filters,
      by: "function",
      sort: search.inverted ? "flat" : "cum",
      search: pattern.kind === "valid" ? serverPattern(pattern.text) : undefined,
      limit: LIMIT,
    }),
  );
  const columns = useMemo(() => (query.data ? columnsFor(query.data) : []), [query.data]);
  return (
    <aside className="flame-table" aria-label="Functions">
      <Answer query={query} what="the functions">
        {(table) => (
          <DataTable
            label="Functions beside the graph"
            rows={table.rows}
            columns={columns}
            rowKey={(row) => row.id}
            total={table.total_rows}
            isSelected={(row) => isChosen(row, search.selected)}
            onSelect={(row) => go({ selected: identityOf(row) }, { replace: true })}
            functions={(row) => [row.name]}
            menu={(row) => functionMenu(row)}
          />
        )}
      </Answer>
      {search.selected !== undefined && <Neighbours of={search.selected} />}
    </aside>
  );
}

function columnsFor({ unit, total }: Functions): Column<FunctionRow>[] {
  const amount = (value: number) => (
    <span title={formatExact(value, unit)}>
      <Share part={Math.abs(value / total)}>{formatValue(value, unit)}</Share>
    </span>
  );
  return [
    {
      id: "flat",
      header: "Self",
      definition: "Sum of blocks where the function itself called the allocator",
      width: "84px",
      numeric: true,
      value: (row) => row.flat,
      cell: (row) => amount(row.flat),
    },
    {
      id: "cum",
      header: "Total",
      definition: "Sum of blocks with it anywhere on the stack; recursion counts once",
      width: "84px",
      numeric: true,
      value: (row) => row.cum,
      cell: (row) => amount(row.cum),
    },
    {
      id: "name",
      header: "Function",
      definition: "Name without arguments",
      width: "minmax(140px, 1fr)",
      value: (row) => row.name,
      cell: (row) => (
        <span className="mono" title={shortName(row.name, 400)}>
          {shortName(boxName(row.name), 160)}
        </span>
      ),
    },
  ];
}

interface Neighbour {
  name: string;
  identity: string;
  value: number;
}

/** Who calls a function and what it calls, by what goes through both: the first step of a sandwich. */
function Neighbours({ of: chosen }: { of: string }) {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const shared = { ...request.metric, ...request.filters, width: 1000, min_px: 0.5, max_nodes: 5000 };
  const pattern = patternOf(chosen);
  const below = useQuery(documentQuery(subject, "flamegraph", { ...shared, show_from: pattern }));
  const above = useQuery(documentQuery(subject, "flamegraph", { ...shared, focus: pattern }));
  const callees = useMemo(() => below.data && calleesIn(below.data, chosen), [below.data, chosen]);
  const callers = useMemo(() => above.data && callersIn(above.data, chosen), [above.data, chosen]);
  const list = (title: string, rows: Neighbour[] | undefined, document: Flamegraph | undefined) => (
    <section aria-label={title}>
      <h3>{title}</h3>
      {rows && document && (
        <ul>
          {rows.slice(0, NEIGHBOURS).map((row) => (
            <li key={row.identity}>
              <span className="numeric" title={formatExact(row.value, document.unit)}>
                {formatPercent(row.value / document.total)}
              </span>
              <button
                type="button"
                className="link mono"
                title={shortName(row.name, 300)}
                onClick={() => go({ selected: row.identity }, { replace: true })}
              >
                {shortName(boxName(row.name), 70)}
              </button>
            </li>
          ))}
          {rows.length === 0 && <li className="muted">none</li>}
        </ul>
      )}
    </section>
  );
  return (
    <div className="flame-neighbours">
      <b className="mono" title={nameIn(chosen)}>
        {shortName(boxName(nameIn(chosen)), 60)}
      </b>
      {(search.filters?.focus ?? search.filters?.show_from) !== undefined && (
        <span className="warn">the filters focus and show from are ignored here</span>
      )}
      {list("Called by", callers, above.data)}
      {list("Calls", callees, below.data)}
    </div>
  );
}

function sorted(rows: Map<string, Neighbour>): Neighbour[] {
  return [...rows.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

function gather(rows: Map<string, Neighbour>, frame: FunctionLike, value: number): void {
  const identity = identityOf(frame);
  const known = rows.get(identity);
  if (known) known.value += value;
  else rows.set(identity, { name: frame.name, identity, value });
}

type FunctionLike = Parameters<typeof identityOf>[0];

function callersIn(document: Flamegraph, chosen: string): Neighbour[] {
  const tree = buildTree(document);
  const root = tree && callersOf(tree, (frame) => isChosen(frame, chosen), document.total);
  const rows = new Map<string, Neighbour>();
  for (const caller of root?.children ?? []) if (caller.frame) gather(rows, caller.frame, caller.value);
  return sorted(rows);
}

function calleesIn(document: Flamegraph, chosen: string): Neighbour[] {
  const tree = buildTree(document);
  const rows = new Map<string, Neighbour>();
  // Under `show_from` everything begins with the function.
  for (const top of tree?.children ?? []) {
    if (!isChosen(top.frame, chosen)) continue;
    for (const callee of top.children) if (callee.frame) gather(rows, callee.frame, callee.value);
  }
  return sorted(rows);
}
