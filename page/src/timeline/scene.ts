// What is drawn: lanes of all profiles on one axis, with the marks that there are so far.

import { bytes, duration } from "../format";
import type { Drawing, Group, Kind, LaneData, Step } from "../messages";
import { FULL, isBucket, type Lane, type Loaded, longestOf, type Marks, NOTHING, type RankLanes } from "./marks";

/** Ranks of the second profile have keys from here on. */
const BESIDE = 2 ** 20;
const KINDS: Group[] = ["ranges", "streams", "counters", "host", "functions"];
/** So many rows of torch ops and functions are shown at first, and no more. */
const MOST_FUNCTIONS = 10;

export const keyOf = (profile: number, rank: number): number => profile * BESIDE + rank;
export const NAMES = ["A", "B"];

export class Scene {
  readonly kinds: Kind[];
  readonly ranks: RankLanes[];
  /** Where the drawing ends. */
  readonly end: number;
  /** By profile: what is added to its times, so that steps lie below each other. */
  readonly shift: number[];
  readonly lanes: Lane[][];

  constructor(readonly profiles: Drawing[]) {
    this.kinds = profiles[0]!.kinds;
    this.shift = profiles.map(() => 0);
    this.end = Math.max(...profiles.map((profile) => profile.end), 1) * (profiles.length > 1 ? 1.25 : 1);
    this.lanes = profiles.map((profile, p) => profile.lanes.map((about, id) => ({
      profile: p, id, about, marks: NOTHING, longest: 0, merged: false, loaded: null, short: {}, full: {},
    })));
    this.ranks = profiles.flatMap((profile, p) => this.ranksOf(profile, p));
  }

  /** What a mark is called in its box. */
  label({ marks, short }: Lane, mark: number): string {
    return short[marks.name[mark]!] ?? "";
  }

  /** What a counter is called, in full, and its scale. */
  caption({ about }: Lane): string {
    return `${about.label}: 0 to ${sampled(about, FULL)}`;
  }

  /** A title for what lies under the pointer. */
  title(lane: Lane, mark: number): string {
    const { marks, about } = lane;
    const kind = this.kinds[marks.kind[mark]!]!;
    if (kind.part !== null) return kind.part;
    if (about.group === "counters") return about.label;
    const { families } = this.profiles[lane.profile]!;
    if (!isBucket(lane, mark)) return lane.full[marks.name[mark]!] ?? "";
    return `${marks.n[mark]!.toLocaleString("en")} begin here, mostly ${families[marks.name[mark]!]}`;
  }

  /** What is known of a mark without asking anybody. */
  facts({ title }: RankLanes, lane: Lane, mark: number): [string, string][] {
    const { about, marks, full } = lane;
    const rows: [string, string][] = [
      ["where", `${title}${about.label ? `, ${about.label}` : ""}`],
      ["from", duration(marks.start[mark]!)],
    ];
    if (about.group === "counters") {
      const [low, high] = [sampled(about, marks.row[mark]!), sampled(about, marks.n[mark]!)];
      return [...rows, ["value", low === high ? high : `${low} to ${high}`]];
    }
    rows.push(["takes", duration(marks.dur[mark]!)]);
    if (isBucket(lane, mark)) {
      if (about.group !== "parts") rows.push(["busy", `${((100 * marks.busy[mark]!) / 255).toFixed(0)} %`]);
      return rows;
    }
    return [...rows, ...carriedFacts(marks, mark, full)];
  }

  /** Marks of a lane have arrived. */
  take(profile: number, id: number, marks: Marks, loaded: Loaded, short: Record<number, string>, full = short): void {
    Object.assign(this.lanes[profile]![id]!, { marks, short, full, loaded, longest: longestOf(marks), merged: marks.busy.some((busy) => busy > 0) });
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

  private ranksOf(profile: Drawing, p: number): RankLanes[] {
    const named = this.profiles.length > 1 ? `${NAMES[p]} ` : "";
    return profile.ranks.map((about) => {
      const { rank, host, place } = about;
      const lanes = this.lanes[p]!.filter((lane) => lane.about.rank === rank);
      return {
        key: keyOf(p, rank),
        rank,
        title: `${named}rank ${rank}`,
        subtitle: place || host || "",
        about,
        parts: lanes.find((lane) => lane.about.group === "parts") ?? null,
        lanes: lanes.filter((lane) => lane.about.group !== "parts"),
      };
    });
  }
}

/** What a report carries of an op. */
export function carriedFacts({ carried }: Marks, mark: number, texts: Record<number, string>): [string, string][] {
  if (!carried) return [];
  const facts: [string, string][] = [];
  const range = texts[carried.range[mark]!], stage = texts[carried.stage[mark]!];
  if (range) facts.push(["range", range]);
  if (stage && !stage.startsWith("(")) facts.push(["stage", stage]);
  if (carried.outside[mark]) facts.push(["note", "launched outside the window"]);
  return facts;
}

/** Kinds of rows that are not shown: as an address says, or those that would be too many. */
export function closedAtFirst({ ranks }: Pick<Scene, "ranks">, linked?: string[]): Set<Group> {
  if (linked) return new Set(KINDS.filter((kind) => linked.includes(kind)));
  const rows = ranks.flatMap(({ lanes }) => lanes.filter(({ about }) => about.group === "functions")).length;
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
export function sampled({ most = 1, unit }: LaneData, part: number): string {
  const value = (most * part) / FULL;
  if (unit === "bytes") return bytes(Math.round(value));
  return `${Number(value.toPrecision(3)).toLocaleString("en")}${unit ? ` ${unit}` : ""}`;
}
