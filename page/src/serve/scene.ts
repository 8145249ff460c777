// What a server has drawn so far: lanes of all profiles on one axis, filled with marks as blocks arrive.

import type { Numbers } from "../data";
import { bytes } from "../format";
import type { Group, Kind } from "../types";
import { type Drawable, FULL, isBucket, type Lane, laneOf, type Marks, type RankLanes } from "../timeline/model";
import type { Block } from "./ask";
import type { SceneData, ServedLane, ServedProfile, Step } from "./types";

/** Ranks of the second profile have keys from here on. */
const BESIDE = 2 ** 20;
const KINDS: Group[] = ["ranges", "streams", "counters", "host", "functions"];
/** So many rows of torch ops and functions are shown at first, and no more. */
const MOST_FUNCTIONS = 10;
const NOTHING: Marks = {
  start: new Float64Array(), dur: new Uint8Array(), kind: new Uint8Array(), name: new Uint8Array(), n: new Uint8Array(),
  of: null, sent: { busy: new Uint8Array(), row: new Uint8Array(), match: new Uint8Array() },
};

/** What a lane was last asked for. */
export interface Loaded {
  from: number;
  to: number;
  pixels: number;
  wanted: string;
}

export interface SceneLane extends Lane {
  profile: number;
  id: number;
  about: ServedLane;
  loaded: Loaded | null;
  texts: Record<string, string>;
}

export const keyOf = (profile: number, rank: number): number => profile * BESIDE + rank;
export const NAMES = ["A", "B"];

export class Scene implements Drawable {
  readonly kinds: Kind[];
  readonly ranks: RankLanes[];
  readonly end: number;
  /** By profile: what is added to its times, so that steps lie below each other. */
  readonly shift: number[];
  readonly lanes: SceneLane[][];

  constructor(readonly data: SceneData) {
    this.kinds = data.profiles[0]!.kinds;
    this.shift = data.profiles.map(() => 0);
    this.end = Math.max(...data.profiles.map((profile) => profile.end), 1) * (data.profiles.length > 1 ? 1.25 : 1);
    this.lanes = data.profiles.map((profile, p) => profile.lanes.map((about, id) => ({
      ...laneOf(about, NOTHING), profile: p, id, about, loaded: null, texts: {},
    })));
    this.ranks = data.profiles.flatMap((profile, p) => this.ranksOf(profile, p));
  }

  label(lane: Lane, mark: number): string {
    return (lane as SceneLane).texts[lane.marks.name[mark]!] ?? "";
  }

  caption(lane: Lane): string {
    const { about } = lane as SceneLane;
    return `${about.label}: 0 to ${sampled(about, FULL)}`;
  }

  /** A title for what lies under the pointer. */
  title(lane: SceneLane, mark: number): string {
    const { marks, about } = lane;
    const kind = this.kinds[marks.kind[mark]!]!;
    if (kind.part !== null) return kind.part;
    if (about.group === "counters") return about.label;
    const { families } = this.data.profiles[lane.profile]!;
    if (!isBucket(lane, mark)) return this.label(lane, mark);
    return `${marks.n[mark]!.toLocaleString("en")} begin here, mostly ${families[marks.name[mark]!]}`;
  }

  take(profile: number, block: Block, loaded: Loaded): void {
    const { columns } = block;
    let first = 0;
    for (const [id, n, base] of block.rows) {
      const own = (numbers: Numbers) => numbers.subarray(first, first + n);
      const start = Float64Array.from(own(columns.start));
      let at = base + this.shift[profile]!;
      for (let i = 0; i < n; i++) start[i] = at += start[i]!;
      const marks: Marks = {
        start, dur: own(columns.dur), kind: own(columns.kind), name: own(columns.name),
        n: own(columns.n), of: null,
        sent: { busy: own(columns.busy), row: own(columns.row), match: own(columns.match) },
      };
      const lane = this.lanes[profile]![id]!;
      Object.assign(lane, laneOf(lane, marks), { loaded, texts: block.texts });
      first += n;
    }
  }

  /** Move a profile on the axis: what was loaded of it lies elsewhere now. */
  align(profile: number, shift: number): void {
    if (this.shift[profile] === shift) return;
    this.shift[profile] = shift;
    for (const lane of this.lanes[profile]!) {
      lane.loaded = null;
      lane.marks = NOTHING;
    }
  }

  private ranksOf(profile: ServedProfile, p: number): RankLanes[] {
    const named = this.data.profiles.length > 1 ? `${NAMES[p]} ` : "";
    return profile.ranks.map(({ rank, host, place, own, drawn, rate }) => {
      const mine = this.lanes[p]!.filter((lane) => lane.rank === rank);
      return {
        key: keyOf(p, rank),
        rank,
        title: `${named}rank ${rank}`,
        subtitle: place || host || "",
        scale: { rank, own, drawn, rate, windows: [] },
        parts: mine.find((lane) => lane.group === "parts") ?? null,
        lanes: mine.filter((lane) => lane.group !== "parts"),
      };
    });
  }
}

/** Kinds of rows that are not shown: as an address says, or those that would be too many. */
export function closedAtFirst({ ranks }: Scene, linked?: string[]): Set<Group> {
  if (linked) return new Set(KINDS.filter((kind) => linked.includes(kind)));
  const rows = ranks.flatMap(({ lanes }) => lanes.filter(({ group }) => group === "functions")).length;
  const closed = new Set<Group>();
  if (ranks.length > 2) closed.add("host");
  if (rows > MOST_FUNCTIONS) closed.add("functions");
  return closed;
}

/** The step that a view is of: its middle lies in it, and the view is not much longer; -1 where there is none. */
export function stepAt(steps: Step[], from: number, to: number): number {
  const middle = (from + to) / 2;
  return steps.findIndex(({ start, end }) => start <= middle && middle <= end && to - from <= 1.5 * (end - start));
}

/** A counter's value, sent as a part of its largest, with its unit. */
export function sampled({ most = 1, unit }: ServedLane, part: number): string {
  const value = (most * part) / FULL;
  if (unit === "bytes") return bytes(Math.round(value));
  return `${Number(value.toPrecision(3)).toLocaleString("en")}${unit ? ` ${unit}` : ""}`;
}
