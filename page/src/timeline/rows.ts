// Which lane lies where: rows from top to bottom, for the ranks that are open and those that are not.

import { type Drawable, type Lane, type RankLanes } from "./model";

export const HEAD = 22, RANGE_LINE = 15, STREAM = 20, COUNTER = 30, GAP = 6;
const TALL: Partial<Record<Lane["group"], number>> = { streams: STREAM, counters: COUNTER };

export interface Row {
  rank: RankLanes;
  /** None for the head of a rank, which shows the rank's parts. */
  lane: Lane | null;
  top: number;
  height: number;
}

/** `open` has keys of ranks; `host` and `functions` say whether those rows are wanted. */
export function layout(ranks: RankLanes[], open: Set<number>, host: boolean, functions = false): { rows: Row[]; height: number } {
  const rows: Row[] = [];
  let top = 0;
  for (const rank of ranks) {
    rows.push({ rank, lane: null, top, height: HEAD });
    top += HEAD;
    for (const lane of open.has(rank.key) ? rank.lanes : []) {
      if ((lane.group === "host" && !host) || (lane.group === "functions" && !functions)) continue;
      const height = TALL[lane.group] ?? RANGE_LINE * lane.lines;
      rows.push({ rank, lane, top, height });
      top += height;
    }
    top += GAP;
  }
  return { rows, height: top };
}

/** Ranks that are open at first: all, unless that would be very long. */
export function firstOpen({ ranks }: Drawable): Set<number> {
  const all = new Set(ranks.map((rank) => rank.key));
  if (layout(ranks, all, false).height <= 1800) return all;
  const some = new Set<number>();
  for (const rank of ranks) {
    some.add(rank.key);
    if (layout(ranks, some, false).height > HEAD * ranks.length + 900) break;
  }
  return some;
}
