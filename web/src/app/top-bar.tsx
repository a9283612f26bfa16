// Name and state of the recording; switches of the page.
import { memo, useState } from "react";
import { apiUrl } from "../api/client.ts";
import { formatDuration, plural } from "../lib/format.ts";
import { fileName } from "../lib/names.ts";
import { recordingText } from "../lib/recording.ts";
import { Button } from "../ui/controls.tsx";
import { Logo } from "../ui/logo.tsx";
import { below, type MenuItem, useMenu } from "../ui/menu.tsx";
import { useCopy } from "../ui/notice.tsx";
import { type Page, usePage, useRequest } from "../ui/page.ts";
import { toggleTheme, useTheme } from "../ui/theme.ts";
import { endText } from "./end-text.ts";
import { documentOf, download, EXPORTS } from "./exports.ts";
import { ReportDialog } from "./report-dialog.tsx";
import { ViewLink } from "./view-link.tsx";
import { ViewTabs } from "./view-tabs.tsx";

interface TopBarProps {
  openSheet: () => void;
  ready: boolean;
  /** The page with the view's own place, which the bar is not drawn anew for. */
  whole: () => Page;
}

export const TopBar = memo(({ openSheet, ready, whole }: TopBarProps) => {
  const page = usePage();
  const theme = useTheme();
  const copy = useCopy();
  const openMenu = useMenu();
  const [dialog, setDialog] = useState(false);
  const request = useRequest();
  const { recording, recordings, info, running, paused, report } = page;
  const process = info?.process;
  const title = process
    ? [fileName(process.executable), process.pid || ""].join(" ").trim()
    : recording.title || recording.name;

  const exported = (format: (typeof EXPORTS)[number]): MenuItem => ({
    label: format.label,
    hint: format.hint,
    run: () =>
      download(
        apiUrl(`recordings/${encodeURIComponent(recording.id)}/export/${format.id}`, format.parameters(request)),
      ),
  });
  const exportItems = (): MenuItem[] => {
    const shown = documentOf(page.view, whole().search, request);
    return [
      { label: "Report, one HTML file…", hint: ".html", run: () => setDialog(true) },
      ...(shown || EXPORTS.length > 0 ? [{ heading: "This window, metric and filter" }] : []),
      ...(shown
        ? [
            {
              label: "What this view shows",
              hint: ".json",
              run: () =>
                download(
                  apiUrl(["recordings", recording.id, shown.document].filter(Boolean).join("/"), shown.parameters),
                  `${page.view}.json`,
                ),
            } satisfies MenuItem,
          ]
        : []),
      ...EXPORTS.filter((format) => format.isPart).map(exported),
      { heading: "The whole recording" },
      ...EXPORTS.filter((format) => !format.isPart).map(exported),
    ];
  };

  return (
    <header className="top-bar">
      {report ? (
        <span className="brand">
          <Logo />
          heaptrace
        </span>
      ) : (
        <a className="brand" href="/" title="All recordings of this server">
          <Logo />
          heaptrace
        </a>
      )}
      {recordings.length > 1 ? (
        <label className="select">
          <h1 className="visually-hidden">{title}</h1>
          <span className="visually-hidden">Recording</span>
          <select
            value={recording.id}
            onChange={(event) =>
              page.go(
                {
                  window: undefined,
                  zoom: undefined,
                  shown: undefined,
                  at: undefined,
                  a: undefined,
                  b: undefined,
                  root: undefined,
                  site: undefined,
                },
                { recording: event.target.value },
              )
            }
          >
            {recordings.map((known) => (
              <option key={known.id} value={known.id}>
                {recordingText(known)}
              </option>
            ))}
          </select>
        </label>
      ) : (
        <h1 className="title" title={info?.process.arguments.join(" ")}>
          {title}
        </h1>
      )}
      {running || paused ? (
        <span className="pill" data-kind={paused ? "paused" : "live"}>
          {paused ? "paused" : "live"} · {formatDuration(page.endNs)}
          {!running && " · the program has ended"}
        </span>
      ) : (
        info && (
          <span className="pill" data-kind={info.complete ? "done" : "warn"}>
            {endText(info)}
          </span>
        )
      )}
      {(running || paused) && (
        <Button
          onClick={() => page.setPaused(!paused)}
          on={paused}
          title="Pause the page while the program runs on (Space)"
        >
          {paused ? "Follow" : "Pause"}
        </Button>
      )}
      {info && info.exactness.lost_events > 0 && (
        <ViewLink view="recording" className="pill" kind="bad">
          {plural(info.exactness.lost_events, "event")} missing
        </ViewLink>
      )}
      {ready ? <ViewTabs /> : <span className="spring" />}
      {!report && (
        <>
          <Button quiet onClick={(event) => openMenu(below(event.currentTarget), exportItems())} aria-haspopup="menu">
            Export
          </Button>
          <Button
            quiet
            onClick={() =>
              copy(
                window.location.href,
                /^(localhost|127\.|\[::1\])/.test(window.location.hostname)
                  ? "the link to this view, which works on this machine only"
                  : "the link to this view",
              )
            }
            title="A link to exactly this view, for this machine"
          >
            Copy link
          </Button>
        </>
      )}
      {dialog && <ReportDialog close={() => setDialog(false)} />}
      <Button
        quiet
        onClick={toggleTheme}
        title="Light or dark (t)"
        aria-label={`Switch to ${theme === "light" ? "dark" : "light"} theme`}
      >
        <span aria-hidden="true">{theme === "light" ? "☾" : "☀"}</span>
      </Button>
      <Button quiet onClick={openSheet} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">
        ?
      </Button>
    </header>
  );
});
