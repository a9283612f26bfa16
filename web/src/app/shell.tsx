// The frame around the views of one recording: top bar, timeline, tabs, filters, and the view of the address.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouter } from "@tanstack/react-router";
import { lazy, memo, Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { LostServerError } from "../api/client.ts";
import { documentQuery, recordingsQuery } from "../api/queries.ts";
import { currentReport } from "../api/report.ts";
import type { RecordingSummary } from "../api/types.ts";
import { Timeline } from "../features/timeline/timeline.tsx";
import { type PageSearch, type View, writeSearch } from "../lib/search-params.ts";
import { useNotice } from "../ui/notice.tsx";
import {
  FrameContext,
  type GoOptions,
  type Href,
  HrefContext,
  type Page,
  PageContext,
  PageSource,
  useFrameSearch,
} from "../ui/page.ts";
import { Answer, Empty, Failure, Loading } from "../ui/states.tsx";
import { ViewBarSlot } from "../ui/view-bar.tsx";
import { FilterBar } from "./filter-bar.tsx";
import { FileBanner, Indexing, IndexingCancelled, IndexingFailed } from "./indexing.tsx";
import { QualityPill } from "./quality-pill.tsx";
import { ReportBar } from "./report-bar.tsx";
import { viewRoute } from "./router.tsx";
import { ShortcutSheet } from "./shortcut-sheet.tsx";
import { SkipLinks } from "./skip-links.tsx";
import { SymbolBanner } from "./symbol-banner.tsx";
import { TopBar } from "./top-bar.tsx";
import { useBrush } from "./use-brush.ts";
import { useLive } from "./use-live.ts";
import { useShortcuts } from "./use-shortcuts.ts";
import { loadOtherViews, NOT_IN_REPORTS, VIEW_OF } from "./views.tsx";

const BothTimelines = lazy(async () => ({
  default: (await import("../features/timeline/both-timelines.tsx")).BothTimelines,
}));

export function Shell() {
  const { recording: id } = viewRoute.useParams();
  const list = useQuery(recordingsQuery());
  return (
    <Answer query={list} what="the list of recordings">
      {({ recordings }) => {
        const recording = recordings.find((known) => known.id === id);
        return recording ? (
          <Opened key={id} recording={recording} recordings={recordings} />
        ) : (
          <main className="lobby">
            <Empty title={`There is no recording “${id}” here`}>
              <a href="/">All recordings of this server</a>
            </Empty>
          </main>
        );
      }}
    </Answer>
  );
}

function Opened({ recording, recordings }: { recording: RecordingSummary; recordings: RecordingSummary[] }) {
  const { view } = viewRoute.useParams();
  const given = viewRoute.useSearch();
  const { search, brushing, brush } = useBrush(given);
  const live = useLive(recording);
  const [frozen, setFrozen] = useState<{ revision: number; endNs: number } | null>(null);
  // The list knows of the end even if the stream of events broke before it could tell.
  const over = recording.state === "ready" || recording.state === "failed" || recording.state === "cancelled";
  const state = over ? recording.state : (live?.state ?? recording.state);
  const running = state === "running";
  const indexing = state === "indexing";

  // The end is a change of the data as well: a revision of its own after the last that was seen.
  const revision = frozen?.revision ?? (live ? live.revision + (over ? 0.5 : 0) : 0);
  const subject = useMemo(() => ({ recording: recording.id, revision }), [recording.id, revision]);
  const info = useQuery({
    ...documentQuery(subject, ""),
    enabled: !indexing && state !== "failed" && state !== "cancelled",
  });
  // A page whose server went away keeps what it had: the next revision has no answer then.
  const known = useRef(info.data);
  if (info.data) known.current = info.data;
  const described = info.data ?? (info.error instanceof LostServerError ? known.current : undefined);
  const duration = described?.process.duration_ns ?? 0;
  const endNs = frozen?.endNs ?? Math.max(duration, running ? (live?.watermark_ns ?? 0) : 0);

  const navigate = useNavigate();
  const router = useRouter();
  const notice = useNotice();
  const report = currentReport();
  const go = useCallback(
    (patch: Partial<PageSearch>, options: GoOptions = {}) => {
      const to = options.view ?? view;
      if (report && asksTooMuch(patch, to)) {
        notice("A report has one window and one filter. Run “heaptrace server” on the recording to choose others.");
        return;
      }
      void navigate({
        to: "/r/$recording/$view",
        params: { recording: options.recording ?? recording.id, view: to },
        search: (previous: PageSearch) => patched(previous, patch, view, to),
        replace: options.replace ?? false,
        resetScroll: false,
      });
    },
    [navigate, recording.id, view, report, notice],
  );
  // By hand: there are twenty links on a page, and for the router to build one takes a tenth of a millisecond.
  const href: Href = useCallback(
    (patch, options = {}) => {
      const to = options.view ?? view;
      const query = writeSearch(patched(search, patch, view, to));
      const path = `/r/${encodeURIComponent(options.recording ?? recording.id)}/${to}`;
      return router.history.createHref(query === "" ? path : `${path}?${query}`);
    },
    [router, recording.id, view, search],
  );
  const setPaused = useCallback((paused: boolean) => setFrozen(paused ? { revision, endNs } : null), [revision, endNs]);

  const base: Omit<Page, "search"> = useMemo(
    () => ({
      recording,
      recordings,
      view,
      subject,
      info: described,
      live,
      endNs,
      running,
      paused: frozen !== null,
      setPaused,
      report,
      brushing,
      brush,
      go,
    }),
    [
      recording,
      recordings,
      view,
      subject,
      described,
      live,
      endNs,
      running,
      frozen,
      setPaused,
      report,
      brushing,
      brush,
      go,
    ],
  );
  const page: Page = useMemo(() => ({ ...base, search }), [base, search]);
  // A step in a view leaves the frame around it as it is: to draw that anew would be most of what the step costs.
  const frameSearch = useFrameSearch(search);
  const frame: Page = useMemo(() => ({ ...base, search: frameSearch }), [base, frameSearch]);

  const latest = useRef(page);
  latest.current = page;
  const whole = useCallback(() => latest.current, []);

  const [sheet, setSheet] = useState(false);
  const openSheet = useCallback(() => setSheet(true), []);
  const [slot, setSlot] = useState<HTMLElement | null>(null);
  useShortcuts(page, () => setSheet((open) => !open));
  useEffect(() => {
    document.title = `${recording.title || recording.name} · heaptrace`;
  }, [recording.title, recording.name]);

  useEffect(() => {
    const timer = setTimeout(loadOtherViews, 1500);
    return () => clearTimeout(timer);
  }, []);

  const View = VIEW_OF[view];
  const compared = view === "compare" ? recordings.find((known) => isComparable(known, recording, search)) : undefined;
  return (
    <PageContext.Provider value={page}>
      <FrameContext.Provider value={frame}>
        <HrefContext.Provider value={href}>
          <div className="shell">
            <SkipLinks />
            <PageSource.Provider value={FrameContext}>
              <TopBar openSheet={openSheet} ready={described !== undefined && !indexing} whole={whole} />
            </PageSource.Provider>
            {report && <ReportBar report={report} />}
            <FileBanner recording={recording} />
            {recording.state === "failed" ? (
              <IndexingFailed recording={recording} />
            ) : state === "cancelled" ? (
              <IndexingCancelled recording={recording} />
            ) : indexing ? (
              <Indexing recording={recording} progress={live?.progress ?? recording.progress} />
            ) : described === undefined ? (
              <main>
                {info.error ? (
                  <Failure error={info.error} retry={() => void info.refetch()} />
                ) : (
                  <Loading what="the recording" />
                )}
              </main>
            ) : (
              <>
                <Frame compared={compared} slot={setSlot} />
                <main className="view" data-view={view} id="view" tabIndex={-1}>
                  <ViewBarSlot value={slot}>
                    <Suspense fallback={<Loading what="the view" />}>
                      <View />
                    </Suspense>
                  </ViewBarSlot>
                </main>
              </>
            )}
          </div>
          {sheet && <ShortcutSheet close={() => setSheet(false)} />}
        </HrefContext.Provider>
      </FrameContext.Provider>
    </PageContext.Provider>
  );
}

const QUALITY = <QualityPill />;

interface FrameProps {
  /** The other recording of a comparison. */
  compared: RecordingSummary | undefined;
  slot: (element: HTMLElement | null) => void;
}

/** What is above every view. */
const Frame = memo(({ compared, slot }: FrameProps) => {
  return (
    <PageSource.Provider value={FrameContext}>
      <Timeline beside={QUALITY} />
      {compared && (
        <Suspense>
          <BothTimelines key={compared.id} other={compared} />
        </Suspense>
      )}
      <FilterBar slot={slot} />
      <SymbolBanner />
    </PageSource.Provider>
  );
});

function isComparable(known: RecordingSummary, recording: RecordingSummary, search: PageSearch): boolean {
  const isReadable = known.state === "ready" || known.state === "running";
  return isReadable && known.id === search.other && known.id !== recording.id;
}

/** Whether a change needs a server. */
function asksTooMuch(patch: Partial<PageSearch>, view: View): boolean {
  const { window, zoom, at, a, b, filters } = patch;
  return [window, zoom, at, a, b, filters].some((part) => part !== undefined) || NOT_IN_REPORTS.has(view);
}

/** A view's own order of rows, selected row, open lines, open site or sandwich means nothing in another view. */
function patched(previous: PageSearch, patch: Partial<PageSearch>, from: View, to: View): PageSearch {
  if (from === to) return { ...previous, ...patch };
  const base: PageSearch = { ...previous, sort: undefined, site: undefined, sandwich: undefined };
  delete base.open;
  delete base.row;
  // Two sides have a tree of their own.
  if (from === "compare" || to === "compare") base.root = undefined;
  return { ...base, ...patch };
}
