// What is known of a mark: beside the pointer, and below the timeline once it is clicked.

import { Command } from "../section";
import { duration } from "../format";
import { FULL, type Lane, type Model, type RankLanes, valuesOf } from "./model";

export function titleOf(model: Model, { marks, group, label }: Lane, mark: number): string {
  if (group === "counters") return label;
  const { part } = model.kinds[marks.kind[mark]!]!;
  const n = marks.n[mark]!;
  if (part !== null) return n > 1 ? `${part}, ${n} times` : part;
  return (n > 1 ? `${n} short ones, the longest: ` : "") + model.full(marks.name[mark]!);
}

/** The values that a counter's mark stands for. */
function sampledText(lane: Lane, mark: number): string {
  const said = (value: number) => Number((((lane.most ?? 1) * value) / FULL).toPrecision(3)).toLocaleString("en");
  const [low, high] = valuesOf(lane, mark).map(said);
  return low === high ? high! : `${low} to ${high}`;
}

/** Where a mark lies, and how long it takes. */
export function placeFacts(rank: RankLanes, { label, marks }: Lane, mark: number): [string, string][] {
  return [
    ["where", `${rank.title}${label ? `, ${label}` : ""}`],
    ["from", duration(marks.start[mark]!)],
    ["takes", duration(marks.dur[mark]!)],
  ];
}

export function facts(model: Model, rank: RankLanes, lane: Lane, mark: number): [string, string][] {
  const rows = placeFacts(rank, lane, mark), { of } = lane.marks;
  if (lane.group === "counters") return [rows[1]!, ["value", sampledText(lane, mark)]];
  if (of?.range[mark]) rows.push(["range", model.full(of.range[mark]!)]);
  const stage = model.full(of?.stage[mark] ?? 0);
  if (stage && !stage.startsWith("(")) rows.push(["stage", stage]);
  if (of?.outside[mark]) rows.push(["note", "launched outside the window"]);
  return rows;
}

export function Tip({ title, rows }: { title: string; rows: [string, string][] }) {
  return (
    <>
      <b>{title}</b>
      <dl>{rows.map(([name, value]) => <><dt>{name}</dt><dd>{value}</dd></>)}</dl>
    </>
  );
}

/** The selected mark, with the command that prints what runs in its time. */
export function Details(props: { model: Model; rank: RankLanes; lane: Lane; mark: number; close: () => void }) {
  const { model, rank, lane, mark } = props;
  const { own: base, drawn, rate } = rank.scale;
  const own = (time: number) => BigInt(base) + BigInt(Math.round((time - drawn) * rate));
  const start = lane.marks.start[mark]!;
  const end = start + Math.max(1, lane.marks.dur[mark]!);
  const command = `${model.data.plain} --rank ${rank.rank} --start @${own(start)} --end @${own(end)}`;
  return (
    <div class="details" role="status">
      <button type="button" class="close" onClick={props.close} aria-label="Close">×</button>
      <Tip title={titleOf(model, lane, mark)} rows={facts(model, rank, lane, mark)} />
      <Command text={command} />
    </div>
  );
}
