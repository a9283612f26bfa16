// The sign of heaptrace: frames of a flame graph, one of them of another colour. The favicon has the same form.
export function Logo() {
  return (
    <svg className="logo" viewBox="0 0 16 14" width="16" height="14" aria-hidden="true">
      <path className="logo-base" d="M1 1h14v3.4H1z" />
      <path className="logo-wide" d="M1 5.3h9v3.4H1z" />
      <path className="logo-hot" d="M11 5.3h4v3.4h-4z" />
      <path className="logo-leaf" d="M3 9.6h5V13H3z" />
    </svg>
  );
}
