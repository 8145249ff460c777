// The view as a link: everything that one must know to look at the same thing stands behind the # of the address.

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
  host?: boolean;
  functions?: boolean;
  step?: number;
}

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
  if (given.has("host")) linked.host = given.get("host") === "1";
  if (given.has("fn")) linked.functions = given.get("fn") === "1";
  return linked;
}

export function writeLink(linked: Linked): void {
  const said = new URLSearchParams();
  const join = (numbers: number[]) => numbers.map(Math.round).join("_");
  if (linked.from !== undefined && linked.to !== undefined) said.set("t", join([linked.from, linked.to]));
  if (linked.span) said.set("span", join(linked.span));
  if (linked.selected) said.set("sel", join(linked.selected));
  if (linked.search) said.set("q", linked.search);
  if (linked.filter) said.set("ranks", linked.filter);
  if (linked.sort && linked.sort !== "rank") said.set("sort", linked.sort);
  if (linked.pinned?.length) said.set("pin", join(linked.pinned));
  if (linked.host !== undefined) said.set("host", linked.host ? "1" : "0");
  if (linked.functions) said.set("fn", "1");
  if (linked.step) said.set("step", String(linked.step));
  history.replaceState(null, "", `#${said}`);
}
