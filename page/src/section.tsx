// What every section has: a title, the window its figures rest on, and the command that prints them.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { NoteData, Part } from "./messages";

export function Section(props: { id: string; part: Part; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section id={props.id}>
      <header>
        <h2>{props.part.title}</h2>
        {props.aside}
      </header>
      <Window lines={props.part.windows} />
      {props.children}
      <Command text={props.part.command} />
    </section>
  );
}

export function Window({ lines }: { lines: string[] }) {
  const [first, ...rest] = lines;
  return <>{first && <p class="window">window: {first}</p>}{rest.map((line) => <p class="window">{line}</p>)}</>;
}

/** A command line, and a button that copies it. */
export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  };
  return (
    <div class="command">
      <code>{text}</code>
      <button type="button" onClick={copy} title="Copy the command">{copied ? "copied" : "copy"}</button>
    </div>
  );
}

/** A table that scrolls in a box of its own, by the keyboard too; it has a name of its own (`aria-label`). */
export const SCROLLS = { class: "scroll", role: "region", tabIndex: 0 } as const;

/** A sentence; what stands between backticks in it is code. */
export function Prose({ text }: { text: string }) {
  return <>{text.split(/`([^`]+)`/).map((piece, i) => (i % 2 ? <code>{piece}</code> : piece))}</>;
}

/** Notes as items of a list: what was lost, or qualifies figures, says so. */
export function NoteItems({ notes }: { notes: NoteData[] }) {
  return <>{notes.map(({ code, severity, text }) => (
    <li title={code}>{severity !== "info" && <b class="focus">{severity}:{"\u00a0"}</b>}<Prose text={text} /></li>
  ))}</>;
}

async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea"); // where pages from files may not use the clipboard
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

export function Key({ kind, children }: { kind: string; children: ComponentChildren }) {
  return <span class="key"><i class={`swatch ${kind}`} />{children}</span>;
}
