// Small controls that every view uses.
import type { ButtonHTMLAttributes, ReactNode } from "react";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  /** Pressed state, for switches. */
  on?: boolean;
  quiet?: boolean;
}

export function Button({ on, quiet, className, ...rest }: ButtonProps) {
  const classes = ["button", quiet ? "quiet" : "", className ?? ""].filter(Boolean).join(" ");
  return <button type="button" className={classes} aria-pressed={on} {...rest} />;
}

interface Choice<T extends string> {
  value: T;
  label: string;
  title?: string;
}

interface SegmentedProps<T extends string> {
  label: string;
  value: T;
  choices: readonly Choice<T>[];
  onChange: (value: T) => void;
}

/** One of a few, all of them visible. */
export function Segmented<T extends string>({ label, value, choices, onChange }: SegmentedProps<T>) {
  return (
    <fieldset className="segmented">
      <legend className="visually-hidden">{label}</legend>
      {choices.map((choice) => (
        <label key={choice.value} title={choice.title} data-on={choice.value === value || undefined}>
          <input
            type="radio"
            name={label}
            value={choice.value}
            checked={choice.value === value}
            onChange={() => onChange(choice.value)}
          />
          {choice.label}
        </label>
      ))}
    </fieldset>
  );
}

interface SelectProps<T extends string> extends SegmentedProps<T> {
  showLabel?: boolean;
}

export function Select<T extends string>({ label, value, choices, onChange, showLabel = true }: SelectProps<T>) {
  return (
    <label className="select">
      <span className={showLabel ? "select-label" : "visually-hidden"}>{label}</span>
      <select value={value} onChange={(event) => onChange(event.target.value as T)}>
        {choices.map((choice) => (
          <option key={choice.value} value={choice.value}>
            {choice.label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A bar that shows a part of a whole behind a number. */
export function Share({ part, children }: { part: number; children: ReactNode }) {
  const width = `${Math.max(0, Math.min(1, Number.isFinite(part) ? part : 0)) * 100}%`;
  return (
    <span className="share">
      <span className="share-bar" style={{ width }} aria-hidden="true" />
      <span className="share-text">{children}</span>
    </span>
  );
}
