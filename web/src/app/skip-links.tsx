// The first thing that Tab reaches: past the bars, to the view or the timeline.
export function SkipLinks() {
  const jump = (selector: string) => () => {
    document.querySelector<HTMLElement>(selector)?.focus();
  };
  return (
    <nav className="skip-links" aria-label="Skip">
      <button type="button" onClick={jump("#view")}>
        To the view
      </button>
      <button type="button" onClick={jump(".timeline-surface")}>
        To the timeline
      </button>
      <button type="button" onClick={jump("input[type=search], .filter-bar button")}>
        To search and filters
      </button>
    </nav>
  );
}
