// Questions in SQL, of the profiles that are open: a table of rows, and the way from a row to its place on the timeline.

import { useEffect, useRef, useState } from "preact/hooks";
import { Command, Prose } from "../section";
import { count, durations } from "../format";
import { ask } from "./ask";
import { NAMES } from "../timeline/scene";
import type { SqlData } from "../messages";

const EXAMPLES: [string, string][] = [
  ["kernels by time", "SELECT name, count(*) AS n, sum(dur_ns) AS total_ns FROM ops GROUP BY name ORDER BY total_ns DESC LIMIT 20"],
  ["longest ops, with their places", "SELECT rank, name, start_ns, dur_ns FROM ops ORDER BY dur_ns DESC LIMIT 20"],
  ["busy time by rank and stream", "SELECT rank, stream, count(*) AS n, sum(dur_ns) AS total_ns FROM ops GROUP BY rank, stream ORDER BY rank, stream"],
  ["tables there are", "SELECT * FROM tables"],
  ["columns there are", "SELECT * FROM columns"],
];

/** How a column is written: durations in one unit; moments stay whole numbers, as commands take them. */
function writer(column: string, values: unknown[]): (value: unknown) => string {
  if (!column.endsWith("_ns") || /^(start|end)_ns$|_(start|end)_ns$/.test(column)) return cell;
  const time = durations(values.map((value) => (typeof value === "number" ? value : null)));
  return (value) => (typeof value === "number" ? time(value) : cell(value));
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return typeof value === "string" ? value : JSON.stringify(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(6)));
}

export function SqlSection({ query, setQuery, profiles, show, input }: {
  /** What was asked last; it stands in the address. */
  query: string;
  setQuery: (query: string) => void;
  profiles: number;
  show: (profile: number, rank: number, start: number, end: number) => void;
  input: { current: HTMLTextAreaElement | null };
}) {
  const [text, setText] = useState(query);
  const [asked, setAsked] = useState(0);
  const [answer, setAnswer] = useState<{ data?: SqlData[]; error?: string; busy?: boolean }>({});
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    setText(query);
    if (!query) return setAnswer({});
    let stopped = false;
    details.current!.open = true;
    setAnswer({ busy: true });
    Promise.all(Array.from({ length: profiles }, (_, p) => ask<SqlData>("sql", { p, q: query })))
      .then((data) => { if (!stopped) setAnswer({ data }); })
      .catch((reason: Error) => { if (!stopped) setAnswer({ error: reason.message }); });
    return () => { stopped = true; };
  }, [query, asked]);
  const run = (wanted = text) => {
    setQuery(wanted.trim());
    setAsked((n) => n + 1);
  };
  return (
    <details id="sql" ref={details}>
      <summary>Query in SQL</summary>
      <div class="query">
        <textarea ref={input} rows={3} spellcheck={false} aria-label="A query in SQL" placeholder="SELECT … FROM ops" value={text}
          onInput={(e) => setText(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) run();
            if (e.key === "Escape") e.currentTarget.blur();
          }} />
        <div class="tools">
          <button type="button" onClick={() => run()} disabled={!text.trim()}>run (Ctrl+Enter)</button>
          <select aria-label="Examples of queries" value="" onChange={(e) => { const wanted = e.currentTarget.value; e.currentTarget.value = ""; setText(wanted); run(wanted); }}>
            <option value="">examples…</option>
            {EXAMPLES.map(([title, example]) => <option value={example}>{title}</option>)}
          </select>
          {query && <span class="dim">The address of this page is a link to this query.</span>}
        </div>
      </div>
      {answer.busy && <p class="dim" role="status">asking…</p>}
      {answer.error && <p class="failed" role="alert">{answer.error}</p>}
      {answer.data?.map((data, p) => <Rows data={data} name={profiles > 1 ? NAMES[p]! : ""} show={(...place) => show(p, ...place)} />)}
    </details>
  );
}

function Rows({ data, name, show }: { data: SqlData; name: string; show: (rank: number, start: number, end: number) => void }) {
  const { columns, numbers, rows, places } = data;
  const placed = places.some((place) => place);
  const writers = columns.map((column, i) => writer(column, rows.map((row) => row[i])));
  return (
    <div class="rows">
      <p class="dim" role="status">{name && <b>{name}: </b>}{count(rows.length, "row")}{data.notes.map((note) => <> · <Prose text={note} /></>)}</p>
      <div class="scroll" tabIndex={0} aria-label="Rows of the query" role="region">
        <table class="figure">
          <thead><tr>{columns.map((column, i) => <th class={numbers[i] ? "" : "text"}>{column}</th>)}{placed && <th>timeline</th>}</tr></thead>
          <tbody>
            {rows.map((row, k) => (
              <tr>
                {row.map((value, i) => <td class={numbers[i] ? "" : "text kernel"} title={String(value ?? "")}>{writers[i]!(value)}</td>)}
                {placed && <td>{places[k] && <button type="button" onClick={() => show(...places[k]!)}>show</button>}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Command text={data.command} />
    </div>
  );
}
