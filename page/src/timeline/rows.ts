// Which lane lies where: rows from top to bottom, for the ranks that are open and those that are not.

import type { Group } from "../messages";
import type { Lane, RankLanes } from "./marks";

export const HEAD = 22, RANGE_LINE = 15, STREAM = 20, COUNTER = 30, GAP = 6;
const TALL: Partial<Record<Group, number>> = { streams: STREAM, counters: COUNTER };

const ON_HOST: Set<Group> = new Set(["host", "functions"]);

export interface Row {
  rank: RankLanes;
  /** None for the head of a rank, which shows the rank's parts. */
  lane: Lane | null;
  top: number;
  height: number;
}

/** `open` has keys of ranks, `closed` kinds of rows that are not wanted. */
export function layout(ranks: RankLanes[], open: Set<number>, closed: Set<Group>): { rows: Row[]; height: number } {
  const rows: Row[] = [];
  let top = 0;
  for (const rank of ranks) {
    rows.push({ rank, lane: null, top, height: HEAD });
    top += HEAD;
    for (const lane of open.has(rank.key) ? rank.lanes : []) {
      if (closed.has(lane.about.group)) continue;
      const height = TALL[lane.about.group] ?? RANGE_LINE;
      rows.push({ rank, lane, top, height });
      top += height;
    }
    top += GAP;
  }
  return { rows, height: top };
}

/** Ranks that are open at first: all, unless that would be very long. */
export function firstOpen({ ranks }: { ranks: RankLanes[] }): Set<number> {
  const all = new Set(ranks.map((rank) => rank.key));
  if (layout(ranks, all, ON_HOST).height <= 1800) return all;
  const some = new Set<number>();
  for (const rank of ranks) {
    some.add(rank.key);
    if (layout(ranks, some, ON_HOST).height > HEAD * ranks.length + 900) break;
  }
  return some;
}
