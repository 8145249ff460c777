// The view as a link: everything that one must know to look at the same thing stands behind the # of the address.

import type { Linked } from "../timeline/linked";

export function readLink(hash = location.hash): Linked {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const numbers = (name: string, n: number): number[] | null => {
    const found = (given.get(name) ?? "").split("_").map(Number);
    return found.length === n && given.get(name) && found.every(Number.isFinite) ? found : null;
  };
  const linked: Linked = {};
  const view = numbers("t", 2), span = numbers("span", 2), selected = numbers("sel", 3), step = numbers("step", 1);
  if (view && view[1]! > view[0]!) [linked.from, linked.to] = view as [number, number];
  if (span && span[1]! > span[0]!) linked.span = span as [number, number];
  if (selected) linked.selected = selected as [number, number, number];
  if (step) linked.step = step[0]!;
  if (given.get("q")) linked.search = given.get("q")!;
  if (given.get("ranks")) linked.filter = given.get("ranks")!;
  if (given.get("sort")) linked.sort = given.get("sort")!;
  if (given.get("pin")) linked.pinned = given.get("pin")!.split("_").map(Number).filter(Number.isFinite);
  if (given.get("closed")) linked.closed = given.get("closed")!.split("_");
  if (given.get("find")) linked.finding = given.get("find")!;
  if (given.get("sql")) linked.sql = given.get("sql")!;
  const place = numbers("place", 1);
  if (place) linked.place = place[0]!;
  return linked;
}

/** What stands behind the address. */
export function written(linked: Linked): string {
  const said = new URLSearchParams();
  const join = (numbers: number[]) => numbers.map(Math.round).join("_");
  if (linked.from !== undefined && linked.to !== undefined) said.set("t", join([linked.from, linked.to]));
  if (linked.span) said.set("span", join(linked.span));
  if (linked.selected) said.set("sel", join(linked.selected));
  if (linked.search) said.set("q", linked.search);
  if (linked.filter) said.set("ranks", linked.filter);
  if (linked.sort && linked.sort !== "rank") said.set("sort", linked.sort);
  if (linked.pinned?.length) said.set("pin", join(linked.pinned));
  if (linked.step) said.set("step", String(linked.step));
  if (linked.closed) said.set("closed", linked.closed.join("_") || "none");
  if (linked.finding) said.set("find", linked.finding);
  if (linked.finding && linked.place) said.set("place", String(linked.place));
  if (linked.sql) said.set("sql", linked.sql);
  return `#${said}`;
}

/** In the address; as an entry of its own that Back leads away from, or in place of the one that is there. Whether it is new. */
export function writeLink(linked: Linked, jumped: boolean): boolean {
  const address = written(linked);
  if (address === location.hash) return false;
  if (jumped) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  return true;
}
