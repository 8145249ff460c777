// What one must know to look at the same thing: an address keeps it (serve/link.ts).

export interface Linked {
  from?: number;
  to?: number;
  span?: [number, number];
  /** profile, lane, row */
  selected?: [number, number, number];
  search?: string;
  filter?: string;
  sort?: string;
  pinned?: number[];
  /** Kinds of rows that are not shown. */
  closed?: string[];
  step?: number;
  /** The finding that is shown, and at which of its places. */
  finding?: string;
  place?: number;
  sql?: string;
}
