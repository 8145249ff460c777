// Which lane lies where: rows from top to bottom, for the ranks that are open and those that are not.

import { type Lane, type Model, type RankLanes } from "./model";

export const HEAD = 22, RANGE_LINE = 15, STREAM = 20, GAP = 6;

export interface Row {
  rank: RankLanes;
  /** None for the head of a rank, which shows the rank's parts. */
  lane: Lane | null;
  top: number;
  height: number;
}

export function layout(model: Model, open: Set<number>, host: boolean): { rows: Row[]; height: number } {
  const rows: Row[] = [];
  let top = 0;
  for (const rank of model.ranks) {
    rows.push({ rank, lane: null, top, height: HEAD });
    top += HEAD;
    for (const lane of open.has(rank.rank) ? rank.lanes : []) {
      if (lane.group === "host" && !host) continue;
      const height = lane.group === "streams" ? STREAM : RANGE_LINE * lane.lines;
      rows.push({ rank, lane, top, height });
      top += height;
    }
    top += GAP;
  }
  return { rows, height: top };
}

/** Ranks that are open at first: all, unless that would be very long. */
export function firstOpen(model: Model): Set<number> {
  const all = new Set(model.ranks.map((rank) => rank.rank));
  if (layout(model, all, false).height <= 1800) return all;
  const some = new Set<number>();
  for (const rank of model.ranks) {
    some.add(rank.rank);
    if (layout(model, some, false).height > HEAD * model.ranks.length + 900) break;
  }
  return some;
}
