// Rows of a table that the server sorts: the pages in sight are asked for, wherever in the table they are.
import { keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";

interface PagedRowsOptions<Doc, Row> {
  /** What the rows depend on; pages of another key are other rows. */
  key: readonly unknown[];
  pageRows: number;
  fetchPage: (offset: number, limit: number, signal?: AbortSignal) => Promise<Doc>;
  rowsOf: (document: Doc) => readonly Row[];
  totalOf: (document: Doc) => number;
}

export interface PagedRows<Doc, Row> {
  /** The first page, or what it was before while it is on its way. */
  first: Doc | undefined;
  error: Error | null;
  isPlaceholderData: boolean;
  refetch: () => unknown;
  total: number;
  /** A row that is here; `undefined` while it is on its way. */
  rowAt: (index: number) => Row | undefined;
  /** Rows from the first on without a gap. */
  head: Row[];
  /** Tells which rows are in sight. */
  onRange: (first: number, last: number) => void;
  /** All rows, up to `most`. */
  all: (most: number) => Promise<Row[]>;
}

/** Rows that one request for all of them asks for. */
const LARGE_PAGE = 1000;

export function usePagedRows<Doc, Row>(options: PagedRowsOptions<Doc, Row>): PagedRows<Doc, Row> {
  const { key, pageRows, fetchPage, rowsOf, totalOf } = options;
  const [range, setRange] = useState<[number, number]>([0, 0]);
  const wanted = useMemo(() => {
    const pages: number[] = [];
    for (let page = Math.max(1, range[0]); page <= range[1]; page += 1) pages.push(page);
    return pages;
  }, [range]);
  const query = (page: number) => ({
    queryKey: [...key, page],
    queryFn: ({ signal }: { signal: AbortSignal }) => fetchPage(page * pageRows, pageRows, signal),
  });
  // Only the first page may show older rows: in the others they would be other rows. It is asked by itself, since
  // queries that are asked together do not know what was there before: the table, and the focus in it, would go.
  const answer = useQuery({ ...query(0), placeholderData: keepPreviousData });
  const others = useQueries({ queries: wanted.map(query) });
  const answers = [answer, ...others];
  const first = answer.data;
  const total = first === undefined ? 0 : totalOf(first);
  const pages = new Map([0, ...wanted].map((page, i) => [page, answers[i]?.data]));
  const rowAt = (index: number) => {
    const document = pages.get(Math.floor(index / pageRows));
    return document === undefined ? undefined : rowsOf(document)[index % pageRows];
  };
  const head: Row[] = [];
  for (let page = 0; ; page += 1) {
    const document = pages.get(page);
    if (document === undefined) break;
    head.push(...rowsOf(document));
  }
  const onRange = useCallback(
    (from: number, to: number) => {
      const next: [number, number] = [Math.floor(from / pageRows), Math.floor(to / pageRows)];
      setRange((now) => (now[0] === next[0] && now[1] === next[1] ? now : next));
    },
    [pageRows],
  );
  const all = async (most: number) => {
    const rows: Row[] = [];
    while (rows.length < Math.min(most, total)) {
      const more = rowsOf(await fetchPage(rows.length, Math.min(LARGE_PAGE, most - rows.length)));
      if (more.length === 0) break;
      rows.push(...more);
    }
    return rows;
  };
  return {
    first,
    error: answers.find((answer) => answer.error)?.error ?? null,
    isPlaceholderData: answer.isPlaceholderData,
    refetch: () => answers.map((answer) => answer.refetch()),
    total,
    rowAt,
    head,
    onRange,
    all,
  };
}
