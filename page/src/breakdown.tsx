// Where the step went: every instant of a rank's window is one of four things, and idle time has a cause.

import { Command, Key, SCROLLS, Section, Window } from "./section";
import { duration, durations, percent } from "./format";
import { useNames } from "./ranks";
import type { Breakdown, BreakdownRow } from "./messages";

interface Piece {
  kind: string;
  name: string;
  ns: number;
}

/** The row cut into what is drawn: idle time by cause where the trace tells. */
function pieces(row: BreakdownRow, causes: Breakdown["causes"]): Piece[] {
  const idle = causes.map(([c, name]) => ({ kind: `idle-${c}`, name: `idle: ${name}`, ns: row.causes[c] ?? 0 }));
  const rest = row.idle_ns - idle.reduce((sum, piece) => sum + piece.ns, 0);
  return [
    { kind: "compute", name: "compute", ns: row.compute_ns },
    { kind: "comm", name: "exposed communication", ns: row.comm_exposed_ns },
    { kind: "copy", name: "exposed copies", ns: row.copy_exposed_ns },
    ...idle,
    { kind: "idle", name: "idle", ns: rest },
  ].filter((piece) => piece.ns > 0);
}

function total(rows: BreakdownRow[]): BreakdownRow {
  const sum = { rank: -1, window_ns: 0, compute_ns: 0, comm_exposed_ns: 0, copy_exposed_ns: 0, idle_ns: 0 };
  const causes: Record<string, number> = {};
  for (const row of rows) {
    sum.window_ns += row.window_ns;
    sum.compute_ns += row.compute_ns;
    sum.comm_exposed_ns += row.comm_exposed_ns;
    sum.copy_exposed_ns += row.copy_exposed_ns;
    sum.idle_ns += row.idle_ns;
    for (const [cause, ns] of Object.entries(row.causes)) causes[cause] = (causes[cause] ?? 0) + ns;
  }
  return { ...sum, comm_hidden_ns: 0, causes };
}

function Bar({ row, causes, scale }: { row: BreakdownRow; causes: Breakdown["causes"]; scale: number }) {
  return (
    <div class="bar">
      {pieces(row, causes).map(({ kind, name, ns }) => (
        <i
          class={kind}
          style={{ width: `${(100 * ns) / scale}%` }}
          title={`${name}: ${duration(ns)}, ${percent((100 * ns) / row.window_ns)}`}
        />
      ))}
    </div>
  );
}

/** All ranks together, in one bar with its parts written out: the answer at first sight. */
export function StepBar({ part }: { part: Breakdown }) {
  if (part.rows.length === 0) return null;
  const all = total(part.rows);
  const shown = pieces(all, part.causes).filter((piece) => piece.ns >= 0.0005 * all.window_ns);
  return (
    <figure class="stepbar">
      <Bar row={all} causes={part.causes} scale={all.window_ns} />
      <figcaption class="keys">
        {shown.map(({ kind, name, ns }) => (
          <Key kind={kind}><b>{percent((100 * ns) / all.window_ns)}</b> {name}</Key>
        ))}
      </figcaption>
      <Window lines={part.windows} />
    </figure>
  );
}

export function BreakdownSection({ part }: { part: Breakdown }) {
  const nameOf = useNames();
  const longest = Math.max(...part.rows.map((row) => row.window_ns), 1);
  const window = durations(part.rows.map((row) => row.window_ns));
  return (
    <Section id="breakdown" part={part}>
      <div {...SCROLLS} aria-label="causes of idle time">
        <table class="figure">
          <thead>
            <tr><th>rank</th><th class="wide" /><th class="lesser">window</th><th>compute</th><th>exposed comm</th><th class="lesser">copies</th><th>idle</th></tr>
          </thead>
          <tbody>
            {part.rows.map((row) => (
              <tr>
                <th scope="row">{nameOf(row.rank)}</th>
                <td class="wide"><Bar row={row} causes={part.causes} scale={longest} /></td>
                <td class="lesser">{window(row.window_ns)}</td>
                <td>{percent((100 * row.compute_ns) / row.window_ns)}</td>
                <td>{percent((100 * row.comm_exposed_ns) / row.window_ns)}</td>
                <td class="lesser">{percent((100 * row.copy_exposed_ns) / row.window_ns)}</td>
                <td>{percent((100 * row.idle_ns) / row.window_ns)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {part.cause_command && <Command text={part.cause_command} />}
    </Section>
  );
}
