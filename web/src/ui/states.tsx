// Loading, empty and failed: the problem, and what to do about it.
import { type ReactNode, useContext, useDeferredValue, useRef } from "react";
import { LostServerError, ProblemError } from "../api/client.ts";
import { sentence } from "../lib/format.ts";
import { Button } from "./controls.tsx";
import { PageContext } from "./page.ts";

export function Loading({ what }: { what: string }) {
  return (
    <div className="state" role="status">
      <div className="skeleton" aria-hidden="true">
        <span /> <span /> <span /> <span />
      </div>
      <p className="muted">Reading {what}…</p>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="state">
      <h2>{title}</h2>
      <div className="muted">{children}</div>
    </div>
  );
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  const page = useContext(PageContext);
  const lost = error instanceof LostServerError;
  const parameter = error instanceof ProblemError ? error.problem.parameter : undefined;
  return (
    <div className="state" role="alert">
      <h2>
        {lost
          ? "The server does not answer"
          : parameter === "root"
            ? "The frame that the link starts from is not in this tree"
            : parameter
              ? "The server refused a parameter"
              : error instanceof ProblemError && error.problem.status === 404
                ? "Not found"
                : error instanceof ProblemError
                  ? error.problem.title
                  : "This did not work"}
      </h2>
      <p className="muted">
        {lost
          ? "Start “heaptrace server” again on the same recording and port; the page goes on by itself."
          : parameter === "root"
            ? "It is of another window, metric or filter."
            : sentence(error.message)}
      </p>
      {parameter && parameter !== "root" && (
        <p className="muted">The parameter is “{parameter}”. Change or remove it above.</p>
      )}
      {parameter === "root" && page ? (
        <Button onClick={() => page.go({ root: undefined, open: undefined, row: undefined })}>
          Show the whole tree
        </Button>
      ) : (
        retry && <Button onClick={retry}>Try again</Button>
      )}
    </div>
  );
}

/** The part of a query's result that is drawn here. */
interface Asked<T> {
  data: T | undefined;
  error: Error | null;
  isPlaceholderData: boolean;
  refetch: () => unknown;
}

interface AnswerProps<T> {
  query: Asked<T>;
  what: string;
  children: (data: T) => ReactNode;
}

/** Draws an answer; keeps the last one, visibly older, while the next is on its way. */
export function Answer<T>({ query, what, children }: AnswerProps<T>) {
  const { error, isPlaceholderData, refetch } = query;
  // A new question that a lost server cannot answer leaves the last answer where it is.
  const last = useRef(query.data);
  if (query.data !== undefined) last.current = query.data;
  const data = query.data ?? (error instanceof LostServerError ? last.current : undefined);
  const retry = () => void refetch();
  // The first picture of a view is its largest piece of work: deferred, React makes it in slices of a few milliseconds.
  const isHere = data !== undefined;
  const isBegun = useDeferredValue(isHere, false);
  const wasHere = useRef(isHere);
  if (data === undefined) return error ? <Failure error={error} retry={retry} /> : <Loading what={what} />;
  // The banner reports a lost server; what is on the page stays readable.
  if (error && !(error instanceof LostServerError)) return <Failure error={error} retry={retry} />;
  if (!isBegun) return wasHere.current ? <div className="answer" data-stale aria-busy /> : <Loading what={what} />;
  return (
    <div className="answer" data-stale={isPlaceholderData || undefined} aria-busy={isPlaceholderData}>
      {children(data)}
    </div>
  );
}
