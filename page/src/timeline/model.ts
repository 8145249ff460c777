// The timeline's marks as typed arrays, by lane and start; and the lanes of ranks, whoever they came from: a report
// carries all of its marks, a server sends what a view shows.

import { column, type Numbers } from "../data";
import type { Kind, LaneIndex, RankScale, Report, TimelineData } from "../types";

/** Marks of one lane, by start. */
export interface Marks {
  start: Float64Array;
  dur: Numbers;
  kind: Numbers;
  name: Numbers;
  n: Numbers;
  /** Of a report: the range and stage that launched it, and whether that was outside the window. */
  of: { range: Numbers; stage: Numbers; outside: Numbers } | null;
  /** Of a server: the busy share of a bucket (of 255; 0 for a mark of its own), its place in the lane, matches. */
  sent: { busy: Numbers; row: Numbers; match: Numbers } | null;
}

export interface Lane extends Pick<LaneIndex, "rank" | "group" | "level" | "label" | "most"> {
  marks: Marks;
  /** The longest mark: how far before the left edge a visible mark may begin. */
  longest: number;
  /** Ranges may overlap others of their depth: each mark's own line below the first. */
  line: Uint8Array | null;
  lines: number;
}

export interface RankLanes {
  /** Tells ranks apart, also those of two profiles. */
  key: number;
  rank: number;
  title: string;
  subtitle: string;
  scale: RankScale;
  parts: Lane | null;
  lanes: Lane[];
}

/** What can be drawn. */
export interface Drawable {
  readonly kinds: Kind[];
  readonly ranks: RankLanes[];
  /** Where the drawing ends. */
  readonly end: number;
  /** What a mark is called in its box. */
  label(lane: Lane, mark: number): string;
  /** What a counter is called, in full, and its scale. */
  caption(lane: Lane): string;
}

/** A mark, wherever it lies in the arrays by now. */
export interface Picked {
  lane: Lane;
  row: number;
}

/** The largest value of a counter, as it is sent. */
export const FULL = 65_535;

export const rowOf = ({ marks }: Lane, mark: number): number => marks.sent?.row[mark] ?? mark;

export const isBucket = ({ marks }: Lane, mark: number): boolean => (marks.sent?.busy[mark] ?? 0) > 0;

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

/** The least and the largest value that a counter's mark stands for, of FULL. */
export function valuesOf({ marks }: Lane, mark: number): [number, number] {
  return [marks.sent?.row[mark] ?? marks.of?.range[mark] ?? 0, marks.n[mark]!];
}

/** The first mark of the lane that can reach `time`. */
export function reaching(lane: Lane, time: number): number {
  return bound(lane, time - lane.longest);
}

/** A lane of these marks, with what drawing needs to know of them. */
export function laneOf(index: Pick<LaneIndex, "rank" | "group" | "level" | "label" | "most">, marks: Marks): Lane {
  let longest = 0;
  for (let i = 0; i < marks.dur.length; i++) longest = Math.max(longest, marks.dur[i]!);
  const { rank, group, level, label, most } = index;
  return { rank, group, level, label, ...(most === undefined ? {} : { most }), marks, longest, line: null, lines: 1 };
}

export class Model implements Drawable {
  readonly kinds: Kind[];
  readonly ranks: RankLanes[];
  readonly end: number;

  constructor(readonly data: TimelineData, report: Report, block: ArrayBuffer) {
    const { columns } = data;
    const all = Object.fromEntries(Object.entries(columns).map(([name, place]) => [name, column(block, place)]));
    this.kinds = data.kinds;
    this.ranks = this.lanesByRank(report, all as Record<keyof typeof columns, Numbers>);
    let end = 1;
    for (const { parts, lanes } of this.ranks) {
      for (const { marks: { start, dur } } of parts ? [parts, ...lanes] : lanes) {
        for (let i = 0; i < start.length; i++) end = Math.max(end, start[i]! + dur[i]!);
      }
    }
    this.end = end;
  }

  label({ marks }: Lane, mark: number): string {
    return this.short(marks.name[mark]!);
  }

  caption({ label, most = 1 }: Lane): string {
    return `${label}: 0 to ${Number(most.toPrecision(3)).toLocaleString("en")}`;
  }

  short(text: number): string {
    return this.data.texts[text]?.[0] ?? "";
  }

  full(text: number): string {
    const both = this.data.texts[text];
    return both?.[1] ?? both?.[0] ?? "";
  }

  private lanesByRank(report: Report, all: Record<keyof TimelineData["columns"], Numbers>): RankLanes[] {
    const about = new Map(report.ranks.map((rank) => [rank.rank, rank]));
    return this.data.ranks.map((scale) => {
      const { rank } = scale;
      const own = this.data.lanes.filter((lane) => lane.rank === rank).map((lane) => this.lane(lane, all));
      const { place = "", host = "" } = about.get(rank) ?? {};
      return {
        key: rank,
        rank,
        title: `rank ${rank}`,
        subtitle: place || host || "",
        scale,
        parts: own.find((lane) => lane.group === "parts") ?? null,
        lanes: own.filter((lane) => lane.group !== "parts"),
      };
    });
  }

  /** Starts are stored as differences within a lane: add them up, and find what drawing needs to know. */
  private lane(index: LaneIndex, all: Record<keyof TimelineData["columns"], Numbers>): Lane {
    const own = (numbers: Numbers) => numbers.subarray(index.first, index.first + index.n);
    const start = Float64Array.from(own(all.start));
    for (let i = 1; i < start.length; i++) start[i]! += start[i - 1]!;
    const of = { range: own(all.range), stage: own(all.stage), outside: own(all.outside) };
    const marks: Marks = { start, dur: own(all.dur), kind: own(all.kind), name: own(all.name), n: own(all.n), of, sent: null };
    const lane = laneOf(index, marks);
    if (index.group === "ranges" || index.group === "host") this.stack(lane);
    return lane;
  }

  /** Ranges of one depth that overlap go below each other, three lines at most. */
  private stack(lane: Lane): void {
    const free = [0], { marks } = lane;
    lane.line = new Uint8Array(marks.start.length);
    for (let k = 0; k < marks.start.length; k++) {
      const start = marks.start[k]!;
      let line = free.findIndex((end) => end <= start);
      if (line < 0) line = free.length < 3 ? free.push(0) - 1 : free.indexOf(Math.min(...free));
      free[line] = start + marks.dur[k]!;
      lane.line[k] = line;
    }
    lane.lines = free.length;
  }
}
