// Whether the server still answers. Where it does not, it is asked again, less and less often.

/** Between two tries: a second at first, half a minute at last. */
const FIRST_MS = 1_000, MOST_MS = 30_000;

export interface Connection {
  /** Nobody answers, or somebody who does not know this page. */
  state: "there" | "gone" | "other";
  /** When it will be asked again. */
  again: number;
}

type Heard = (now: Connection) => void;

let now: Connection = { state: "there", again: 0 };
let timer = 0, wait = FIRST_MS;
const heard = new Set<Heard>();

const set = (next: Connection) => {
  now = next;
  for (const each of heard) each(next);
};

export function listen(to: Heard): () => void {
  heard.add(to);
  to(now);
  return () => void heard.delete(to);
}

/** A request found nobody. */
export function lost(): void {
  if (now.state === "gone") return;
  wait = FIRST_MS;
  later();
}

/** Ask at once. */
export function retry(): void {
  clearTimeout(timer);
  void look();
}

export const isThere = (): boolean => now.state === "there";

function later(): void {
  clearTimeout(timer);
  set({ state: "gone", again: Date.now() + wait });
  timer = setTimeout(() => void look(), wait);
  wait = Math.min(2 * wait, MOST_MS);
}

async function look(): Promise<void> {
  try {
    const { status } = await fetch("/api/alive", { credentials: "same-origin" });
    set({ state: status === 401 ? "other" : "there", again: 0 });
  } catch {
    later();
  }
}
