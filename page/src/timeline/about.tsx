// What is known of a mark: beside the pointer, and below the timeline once it is clicked.

import { Command } from "../section";
import { duration } from "../format";
import type { Model, RankLanes } from "./model";

export function titleOf(model: Model, mark: number): string {
  const { part } = model.data.kinds[model.kind[mark]!]!;
  const n = model.n[mark]!;
  if (part !== null) return n > 1 ? `${part}, ${n} times` : part;
  return (n > 1 ? `${n} short ones, the longest: ` : "") + model.full(model.name[mark]!);
}

export function facts(model: Model, rank: RankLanes, mark: number, lane: string): [string, string][] {
  const rows: [string, string][] = [
    ["where", `${rank.title}${lane ? `, ${lane}` : ""}`],
    ["from", duration(model.start[mark]!)],
    ["takes", duration(model.dur[mark]!)],
  ];
  if (model.range[mark]) rows.push(["range", model.full(model.range[mark]!)]);
  const stage = model.full(model.stage[mark]!);
  if (stage && !stage.startsWith("(")) rows.push(["stage", stage]);
  if (model.outside[mark]) rows.push(["note", "launched outside the window"]);
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
export function Details(props: { model: Model; rank: RankLanes; mark: number; lane: string; close: () => void }) {
  const { model, rank, mark } = props;
  const { own: base, drawn, rate } = rank.scale;
  const own = (time: number) => BigInt(base) + BigInt(Math.round((time - drawn) * rate));
  const start = model.start[mark]!;
  const end = start + Math.max(1, model.dur[mark]!);
  const command = `${model.data.plain} --rank ${rank.rank} --start ${own(start)} --end ${own(end)}`;
  return (
    <div class="details" role="status">
      <button type="button" class="close" onClick={props.close} aria-label="Close">×</button>
      <Tip title={titleOf(model, mark)} rows={facts(model, rank, mark, props.lane)} />
      <Command text={command} />
    </div>
  );
}
