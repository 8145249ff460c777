// Marks as typed arrays, by lane and start; a report carries all of its marks, a server sends what a view shows.

import { column, type Numbers } from "../data";
import type { DrawnRank, LaneData, MarksData } from "../messages";

/** Marks of one lane, by start. `busy` is 0 for a mark of its own, else the share of a bucket that is busy, of 255. */
export interface Marks {
  start: Float64Array;
  dur: Numbers;
  kind: Numbers;
  /** The number of a text; of a bucket, of its family. */
  name: Numbers;
  n: Numbers;
  busy: Numbers;
  /** The mark's place in its lane; of a counter, the least value. */
  row: Numbers;
  /** Whether it is searched for; empty where nothing is. */
  match: Numbers;
  /** Of a report: the range and stage that launched it, and whether that was outside the window. */
  carried: { range: Numbers; stage: Numbers; outside: Numbers } | null;
}

/** What a lane was last asked for. */
export interface Loaded {
  from: number;
  to: number;
  pixels: number;
  wanted: string;
}

export interface Lane {
  profile: number;
  id: number;
  about: LaneData;
  marks: Marks;
  /** The longest mark: how far before the left edge a visible mark may begin. */
  longest: number;
  /** Whether some marks are buckets. */
  merged: boolean;
  loaded: Loaded | null;
  /** Names by number: what fits into a box, and all that is known of them. */
  short: Record<number, string>;
  full: Record<number, string>;
}

export interface RankLanes {
  /** Tells ranks apart, also those of two profiles. */
  key: number;
  rank: number;
  title: string;
  subtitle: string;
  about: DrawnRank;
  parts: Lane | null;
  lanes: Lane[];
}

/** A mark, wherever it lies in the arrays by now. */
export interface Picked {
  lane: Lane;
  row: number;
}

/** The largest value of a counter, as it is sent. */
export const FULL = 65_535;

const NONE = new Uint8Array();
export const NOTHING: Marks = {
  start: new Float64Array(), dur: NONE, kind: NONE, name: NONE, n: NONE, busy: NONE, row: NONE, match: NONE, carried: null,
};

/** Every lane of a block, with its marks. Starts are sent as differences within a lane. */
export function marksOf({ rows, columns }: MarksData, block: ArrayBuffer, base = 0, shift = 0): [number, Marks][] {
  const read = (name: keyof typeof columns): Numbers => {
    const place = columns[name];
    return place ? column(block, { ...place, at: base + place.at }) : NONE;
  };
  const all = {
    start: read("start"), dur: read("dur"), kind: read("kind"), name: read("name"), n: read("n"), busy: read("busy"), row: read("row"),
    match: read("match"), range: read("range"), stage: read("stage"), outside: read("outside"),
  };
  let first = 0;
  return rows.map(([id, n, begin]) => {
    const own = (numbers: Numbers) => numbers.subarray(first, first + n);
    const start = Float64Array.from(own(all.start));
    let at = begin + shift;
    for (let i = 0; i < n; i++) start[i] = at += start[i]!;
    const carried = columns.range ? { range: own(all.range), stage: own(all.stage), outside: own(all.outside) } : null;
    const marks: Marks = {
      start, dur: own(all.dur), kind: own(all.kind), name: own(all.name), n: own(all.n), busy: own(all.busy), row: own(all.row),
      match: own(all.match), carried,
    };
    first += n;
    return [id, marks];
  });
}

export const isBucket = ({ marks }: Lane, mark: number): boolean => (marks.busy[mark] ?? 0) > 0;

/** The longest of some marks. */
export function longestOf({ dur }: Marks): number {
  let longest = 0;
  for (let i = 0; i < dur.length; i++) longest = Math.max(longest, dur[i]!);
  return longest;
}

/** The first mark of the lane that starts at `time` or later. */
export function bound({ marks: { start } }: Lane, time: number): number {
  let low = 0, high = start.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (start[middle]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first mark of the lane that can reach `time`. */
export function reaching(lane: Lane, time: number): number {
  return bound(lane, time - lane.longest);
}

/** The mark of a lane at a moment, within `slack` ns; -1 where there is none. */
export function markAt(lane: Lane, time: number, slack: number): number {
  let best = -1, nearest = slack;
  const last = bound(lane, time + slack);
  for (let i = reaching(lane, time - slack); i < last; i++) {
    const start = lane.marks.start[i]!, end = start + lane.marks.dur[i]!;
    const off = time < start ? start - time : time > end ? time - end : 0;
    if (off <= nearest) [best, nearest] = [i, off]; // of several, the last to start: the innermost
  }
  return best;
}
