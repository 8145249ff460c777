// Which ranks are shown, and in which order.

import type { RankLanes } from "./marks";

export type Sort = "rank" | "culprit" | "host";
export const SORTS: [Sort, string][] = [["rank", "by number"], ["culprit", "culprit first"], ["host", "by host"]];

/** A rank's number among `0,3-5`, or a part of its name, host or place. */
function wanted(filter: string, { rank, title, subtitle }: RankLanes): boolean {
  const text = filter.trim().toLowerCase();
  if (!text) return true;
  if (/^[\d\s,-]+$/.test(text)) {
    return text.split(",").some((piece) => {
      const [first, last] = piece.split("-").map((part) => Number(part.trim()));
      return piece.trim() !== "" && rank >= first! && rank <= (last ?? first!);
    });
  }
  return `${title} ${subtitle}`.toLowerCase().includes(text);
}

/** Pinned ranks first, whatever the filter says; then the others, those of two profiles beside each other. */
export function arranged(
  ranks: RankLanes[], pinned: Set<number>, filter: string, sort: Sort, late: Record<string, number>, hosts: Map<number, string>,
): RankLanes[] {
  const by: Record<Sort, (a: RankLanes, b: RankLanes) => number> = {
    rank: () => 0,
    culprit: (a, b) => (late[b.rank] ?? 0) - (late[a.rank] ?? 0),
    host: (a, b) => (hosts.get(a.key) ?? "").localeCompare(hosts.get(b.key) ?? ""),
  };
  const order = (a: RankLanes, b: RankLanes) => by[sort](a, b) || a.rank - b.rank || a.key - b.key;
  const first = ranks.filter((rank) => pinned.has(rank.key)).sort(order);
  return [...first, ...ranks.filter((rank) => !pinned.has(rank.key) && wanted(filter, rank)).sort(order)];
}
