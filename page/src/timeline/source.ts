// Where a timeline's marks come from, and who answers what is asked of them: a report that carries them, or a server.

import type { DetailsData, MatchData, PartSums, SearchData, SpanData } from "../messages";
import type { Marks } from "./marks";
import type { Row } from "./rows";

/** What is in view. */
export interface Wanted {
  from: number;
  to: number;
  rows: Row[];
  pixels: number;
  search: string;
}

/** Figures of a stretch of time; what nobody can tell is null. */
export interface Measured extends Omit<SpanData, "ranks" | "sum" | "ops" | "op_ns"> {
  ranks: { rank: number }[];
  sum: Omit<PartSums, "comm_hidden_ns"> & { comm_hidden_ns: number | null };
  ops: number | null;
  op_ns: number | null;
}

export interface Source {
  /** Who draws is told when marks arrive, and what went wrong. */
  heard: { arrived: () => void; failed: (reason: string) => void };
  /** This is in view: what is lacking is fetched. */
  show(wanted: Wanted): void;
  /** Letters are typed for so long, in ms, before they are searched for. */
  readonly pause: number;
  /** By profile. */
  search(wanted: string): Promise<SearchData[]>;
  /** The k-th match, or the first at a moment or later. */
  match(profile: number, wanted: string, where: { k: number } | { at: number }): Promise<MatchData>;
  details(profile: number, lane: number, row: number): Promise<DetailsData>;
  span(profile: number, ranks: number[], from: number, to: number): Promise<Measured | null>;
  /** Marks of some lanes of parts, on so many pixels of all time, as they are drawn. */
  parts(profile: number, lanes: number[], pixels: number): Promise<Marks[]>;
}
