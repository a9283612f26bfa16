// A mark that somebody adds afterwards, at the chosen instant.
import { type FormEvent, useState } from "react";
import { formatInstant } from "../../lib/format.ts";
import { Button } from "../../ui/controls.tsx";
import { useNotes } from "../../ui/notes.ts";
import { useNotice } from "../../ui/notice.tsx";
import { usePage } from "../../ui/page.ts";

export function AddNote() {
  const { search, endNs, recording } = usePage();
  const notes = useNotes(recording.name);
  const notice = useNotice();
  const [open, setOpen] = useState(false);
  const [text, setText] = useState("");
  const t = search.at ?? search.window?.from ?? endNs;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim() === "") return;
    if (!notes.add({ t, text: text.trim() })) notice("The browser stores nothing for this page; the mark is lost.");
    setText("");
    setOpen(false);
  };
  if (!open) {
    return (
      <Button
        quiet
        title="Add a mark of your own at the chosen instant; the Recording view lists them"
        onClick={() => setOpen(true)}
      >
        + Mark
      </Button>
    );
  }
  return (
    <form className="add-filter" onSubmit={submit}>
      <input
        aria-label={`Label of the mark at ${formatInstant(t)}`}
        placeholder={`at ${formatInstant(t)}`}
        value={text}
        maxLength={120}
        // biome-ignore lint/a11y/noAutofocus: the field appears because its button was pressed
        autoFocus
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") setOpen(false);
          event.stopPropagation();
        }}
      />
      <Button type="submit">Add</Button>
    </form>
  );
}
