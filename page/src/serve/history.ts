// The address follows the view, and Back undoes a jump: a jump is an entry of its own, and what moves on from there replaces it.

import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Finding } from "../messages";
import type { Linked } from "../timeline/linked";
import { readLink, writeLink } from "./link";

/** The view stands still so long before it is written down. */
const SETTLED_MS = 250;

export interface Remembered {
  /** Something changed: write it down soon. */
  remember: () => void;
  /** What changes next is a jump: Back leads to what is there now. */
  jump: () => void;
}

/** What the page shows, as an address has it; and how it shows what an address says: one that Back leads to, or that was pasted. */
export interface Shown {
  now: () => Linked;
  apply: (linked: Linked) => void;
}

export function useHistory(now: () => Linked, apply: (linked: Linked) => void): Remembered {
  const latest = useRef({ now, apply });
  latest.current = { now, apply };
  const made = useMemo(() => keeper(latest), []);
  useEffect(() => {
    addEventListener("hashchange", made.changed);
    return () => removeEventListener("hashchange", made.changed);
  }, []);
  return made;
}

/** `changed`: the address is another than was written. */
export function keeper(latest: { current: Shown }): Remembered & { changed: () => void } {
  let timer = 0, jumped = false, at = location.hash;
  const write = () => {
    clearTimeout(timer);
    if (location.hash !== at) return; // Back led elsewhere, and `changed` is yet to hear of it
    if (writeLink(latest.current.now(), jumped)) jumped = false;
    at = location.hash;
  };
  const remember = () => {
    clearTimeout(timer);
    timer = setTimeout(write, SETTLED_MS);
  };
  const jump = () => {
    write();
    jumped = true;
    remember();
  };
  const changed = () => {
    clearTimeout(timer);
    jumped = false;
    at = location.hash;
    latest.current.apply(readLink());
  };
  return { remember, jump, changed };
}

/** What a finding is called in an address: its id, with a number where several have it. */
export function findingKey(rows: Finding[], finding: Finding): string {
  const alike = rows.filter(({ id }) => id === finding.id);
  return alike.length > 1 ? `${finding.id}~${alike.indexOf(finding)}` : finding.id;
}
