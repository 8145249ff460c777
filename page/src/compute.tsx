// The budget of the step: from the model's FLOPs at the dense peak down to the time that it takes; and the groups of its kernels.

import { Command, Prose, SCROLLS, Section } from "./section";
import { count, duration, durations, percent } from "./format";
import type { Compute, LossRow, WorkGroup } from "./messages";

/** What each row of the budget is drawn as: good work, work that could be less, and time without compute. */
const KINDS: Record<string, string> = {
  "ideal": "compute",
  "memory-bound by nature": "hidden",
  "exposed communication": "comm",
  "exposed copies": "copy",
};

function kind(loss: string): string {
  return KINDS[loss] ?? (loss.startsWith("idle: ") ? `idle-${loss.slice(6)}` : "late");
}

export function ComputeSection({ part }: { part: Compute }) {
  const whole = part.rows.reduce((sum, row) => sum + row.total_ns, 0) || 1;
  return (
    <Section id="compute" part={part}>
      <p>{part.statement}</p>
      <figure class="stepbar">
        <div class="bar">
          {part.rows.map(({ loss, total_ns }) => (
            <i
              class={kind(loss)}
              style={{ width: `${(100 * total_ns) / whole}%` }}
              title={`${loss}: ${duration(total_ns)}, ${percent((100 * total_ns) / whole)}`}
            />
          ))}
        </div>
      </figure>
      <Losses rows={part.rows} whole={whole} />
      <Groups groups={part.groups} />
      {part.left_out > 0 && <p class="dim">{count(part.left_out, "smaller group")} not shown</p>}
      <Command text={part.group_command} />
    </Section>
  );
}

/** One bar under the other, each from where the one above it ends. */
function Losses({ rows, whole }: { rows: LossRow[]; whole: number }) {
  const time = durations(rows.map((row) => row.total_ns));
  let done = 0;
  return (
    <div {...SCROLLS} aria-label="from the peak down to the step">
      <table class="figure">
        <thead>
          <tr><th class="text">from the peak down to the step</th><th class="wide" /><th>time</th><th>share</th><th class="text lesser">what it is</th></tr>
        </thead>
        <tbody>
          {rows.map(({ loss, what, total_ns, share_pct }) => {
            const from = done;
            done += total_ns;
            return (
              <tr>
                <th scope="row">{loss}</th>
                <td class="wide">
                  <div class="bar whole">
                    <i style={{ width: `${(100 * from) / whole}%` }} />
                    <i class={kind(loss)} style={{ width: `${(100 * total_ns) / whole}%` }} />
                  </div>
                </td>
                <td>{time(total_ns)}</td>
                <td>{percent(share_pct)}</td>
                <td class="text lesser"><Prose text={what} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Groups({ groups }: { groups: WorkGroup[] }) {
  const time = durations(groups.map((group) => group.total_ns)), well = durations(groups.map((group) => group.good_ns));
  return (
    <div {...SCROLLS} aria-label="parts of the model">
      <table class="figure">
        <thead>
          <tr>
            <th>part</th><th class="text">pass</th><th class="lesser">kernels</th><th>time</th><th>share</th><th>done well</th>
            <th class="text lesser">known from</th><th class="text lesser">precision</th><th class="text lesser">bound by</th>
          </tr>
        </thead>
        <tbody>
          {groups.map((group) => (
            <tr>
              <th scope="row">{group.part}</th>
              <td class="text">{group.phase}</td>
              <td class="lesser">{group.n}</td>
              <td>{time(group.total_ns)}</td>
              <td>{percent(group.share_pct)}</td>
              <td>{well(group.good_ns)}</td>
              <td class="text lesser">{group.good_from ?? "–"}</td>
              <td class="text lesser">{group.precision ?? "–"}</td>
              <td class="text lesser">{group.bound ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
