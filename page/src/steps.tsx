// All steps of the run as bars by part. Those that are longer than their like are marked; a click names the command.

import { useState } from "preact/hooks";
import { Command, Key, Section } from "./section";
import { count, duration } from "./format";
import type { StepRow, Steps } from "./messages";

const PARTS = [
  ["idle_ns", "idle", "idle"],
  ["copy_exposed_ns", "copy", "exposed copies"],
  ["comm_exposed_ns", "comm", "exposed communication"],
  ["compute_ns", "compute", "compute"],
] as const;

/** With `go`, a click also shows the step where it lies on a timeline. */
export function StepsSection({ part, go }: { part: Steps; go?: (row: StepRow) => void }) {
  const [chosen, setChosen] = useState<StepRow | null>(null);
  const choose = (row: StepRow) => {
    setChosen(row);
    go?.(row);
  };
  const longest = Math.max(...part.rows.map((row) => row.step_ns + row.between_ns), 1);
  const some = (key: (typeof PARTS)[number][0] | "between_ns") => part.rows.some((row) => row[key] > 0);
  const legend = (
    <span class="keys">
      {[...PARTS].reverse().map(([key, kind, name]) => some(key) && <Key kind={kind}>{name}</Key>)}
      {some("between_ns") && <Key kind="between">between steps</Key>}
      {part.rows.some((row) => row.spike) && <span class="key">▲ longer than its like</span>}
      {part.rows.some((row) => row.cut) && <span class="key">pale: not recorded whole</span>}
    </span>
  );
  return (
    <Section id="steps" part={part} aside={legend}>
      <p>{part.statement}</p>
      <p class="scale" aria-hidden="true">{duration(longest)}</p>
      <div class="steps" role="group" aria-label={`${count(part.rows.length, "step")}, up to ${duration(longest)}`}>
        {part.rows.map((row) => <Bar row={row} longest={longest} chosen={row === chosen} choose={choose} />)}
      </div>
      {part.left_out > 0 && <p class="dim">{count(part.left_out, "usual step")} not drawn.</p>}
      {chosen && <p><b>{chosen.label}</b>: {words(chosen)}</p>}
      {chosen && <Command text={`${part.look} --index ${chosen.index}`} />}
    </Section>
  );
}

function words(row: StepRow): string {
  const kind = row.cut ? "not whole" : row.spike ? "a spike" : `${row.kind ?? "no"} kind`;
  const parts = PARTS.filter(([key]) => row[key] > 0).map(([key, , name]) => `${name} ${duration(row[key])}`);
  const between = row.between_ns > 0 ? [`${duration(row.between_ns)} before it`] : [];
  return [`${duration(row.step_ns)}, ${kind}`, ...parts.reverse(), ...between].join(", ");
}

interface BarProps {
  row: StepRow;
  longest: number;
  chosen: boolean;
  choose: (row: StepRow) => void;
}

function Bar({ row, longest, chosen, choose }: BarProps) {
  const height = (ns: number) => ({ height: `${(100 * ns) / longest}%` });
  const marks = [row.spike && "spike", row.cut && "cut", chosen && "chosen"].filter(Boolean).join(" ");
  return (
    <button type="button" class={marks} title={`${row.label}: ${words(row)}`} onClick={() => choose(row)}>
      {row.spike && <span>▲</span>}
      {row.between_ns > 0 && <i class="between" style={height(row.between_ns)} />}
      {PARTS.map(([key, kind]) => row[key] > 0 && <i class={kind} style={height(row[key])} />)}
    </button>
  );
}
