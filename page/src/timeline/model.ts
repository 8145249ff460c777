// The timeline's marks as typed arrays, sorted by lane and start; lanes; and the rows that they are drawn on.

import { column, type Numbers } from "../data";
import type { LaneIndex, RankScale, Report, TimelineData } from "../types";

export interface Lane extends LaneIndex {
  /** The longest mark: how far before the left edge a visible mark may begin. */
  longest: number;
  /** Ranges may overlap others of their depth: each mark's own line below the first. */
  line: Uint8Array | null;
  lines: number;
}

export interface RankLanes {
  rank: number;
  title: string;
  subtitle: string;
  scale: RankScale;
  parts: Lane | null;
  lanes: Lane[];
}

export class Model {
  readonly start: Float64Array;
  readonly dur: Numbers;
  readonly kind: Numbers;
  readonly name: Numbers;
  readonly range: Numbers;
  readonly stage: Numbers;
  readonly outside: Numbers;
  readonly n: Numbers;
  readonly ranks: RankLanes[];
  /** Where the drawing ends. */
  readonly end: number;

  constructor(readonly data: TimelineData, report: Report, block: ArrayBuffer) {
    const { columns } = data;
    this.start = Float64Array.from(column(block, columns.start));
    this.dur = column(block, columns.dur);
    this.kind = column(block, columns.kind);
    this.name = column(block, columns.name);
    this.range = column(block, columns.range);
    this.stage = column(block, columns.stage);
    this.outside = column(block, columns.outside);
    this.n = column(block, columns.n);
    this.ranks = this.lanesByRank(report);
    let end = 1;
    for (let i = 0; i < this.start.length; i++) end = Math.max(end, this.start[i]! + this.dur[i]!);
    this.end = end;
  }

  short(text: number): string {
    return this.data.texts[text]?.[0] ?? "";
  }

  full(text: number): string {
    const both = this.data.texts[text];
    return both?.[1] ?? both?.[0] ?? "";
  }

  /** The first mark of the lane that can reach `time`. */
  from(lane: Lane, time: number): number {
    return this.bound(lane, time - lane.longest);
  }

  /** The first mark of the lane that starts at `time` or later. */
  bound(lane: Lane, time: number): number {
    let low = lane.first, high = lane.first + lane.n;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.start[middle]! < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private lanesByRank(report: Report): RankLanes[] {
    const about = new Map(report.ranks.map((rank) => [rank.rank, rank]));
    return this.data.ranks.map((scale) => {
      const { rank } = scale;
      const own = this.data.lanes.filter((lane) => lane.rank === rank).map((lane) => this.lane(lane));
      const { place = "", host = "" } = about.get(rank) ?? {};
      return {
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
  private lane(index: LaneIndex): Lane {
    let longest = 0;
    const last = index.first + index.n;
    for (let i = index.first; i < last; i++) {
      if (i > index.first) this.start[i]! += this.start[i - 1]!;
      longest = Math.max(longest, this.dur[i]!);
    }
    const lane: Lane = { ...index, longest, line: null, lines: 1 };
    if (index.group === "ranges" || index.group === "host") this.stack(lane);
    return lane;
  }

  /** Ranges of one depth that overlap go below each other, three lines at most. */
  private stack(lane: Lane): void {
    const free = [0];
    lane.line = new Uint8Array(lane.n);
    for (let k = 0; k < lane.n; k++) {
      const start = this.start[lane.first + k]!;
      let line = free.findIndex((end) => end <= start);
      if (line < 0) line = free.length < 3 ? free.push(0) - 1 : free.indexOf(Math.min(...free));
      free[line] = start + this.dur[lane.first + k]!;
      lane.line[k] = line;
    }
    lane.lines = free.length;
  }
}
