// Fetches what a view lacks: one request per block of visible rows, a few at once, and the newest view first.

import { type Lane, marksOf } from "../timeline/marks";
import type { Scene } from "../timeline/scene";
import type { Wanted } from "../timeline/source";
import { askBlock, Lost } from "./ask";
import { isThere } from "./connection";

/** Rows of one request, and requests at once. */
const BLOCK = 24, AT_ONCE = 3;
/** So much more than the view is fetched on either side, so that a small move shows no gap. */
const MARGIN = 0.25;
/** A view that stands still so long is asked for, and one that moves at least so often. */
const SETTLED_MS = 40, MOST_WAIT_MS = 150;

export class Loader {
  private wanted: Wanted | null = null;
  private running = 0;
  private timer = 0;
  private since = 0;

  constructor(
    private readonly scene: Scene,
    private readonly arrived: () => void,
    private readonly failed: (reason: string) => void,
  ) {}

  /** What is visible now. While the view moves, it is not asked for at every frame: what is there is drawn stretched. */
  show(wanted: Wanted): void {
    const same = this.wanted && wanted.from === this.wanted.from && wanted.to === this.wanted.to;
    if (!isThere()) return; // the page comes back to it once somebody answers again
    this.wanted = wanted;
    const now = performance.now();
    clearTimeout(this.timer);
    if (same || now - this.since > MOST_WAIT_MS) {
      this.since = now;
      this.next();
    } else this.timer = setTimeout(() => { this.since = performance.now(); this.next(); }, SETTLED_MS);
  }

  private next(): void {
    while (this.running < AT_ONCE) {
      const lanes = this.missing();
      if (!lanes.length) return;
      void this.load(lanes.slice(0, BLOCK));
    }
  }

  /** Visible lanes of one profile whose marks are not those of the view. */
  private missing(): Lane[] {
    if (!this.wanted) return [];
    const { from, to, rows, pixels, search } = this.wanted;
    const finest = (to - from) / pixels;
    const lacks = rows.map((row) => (row.lane ?? row.rank.parts)).filter((lane): lane is Lane => {
      if (!lane) return false;
      const { loaded } = lane;
      if (!loaded || loaded.wanted !== search) return true;
      const drawn = (loaded.to - loaded.from) / loaded.pixels;
      return loaded.from > Math.max(from, 0) || loaded.to < Math.min(to, this.scene.end) || drawn > finest * 1.001;
    });
    return lacks.filter((lane) => lane.profile === lacks[0]!.profile);
  }

  private async load(lanes: Lane[]): Promise<void> {
    const { from, to, pixels, search } = this.wanted!;
    const around = (to - from) * MARGIN;
    const loaded = {
      from: Math.floor(from - around), to: Math.ceil(to + around), pixels: Math.ceil(pixels * (1 + 2 * MARGIN)), wanted: search,
    };
    const profile = lanes[0]!.profile, shift = this.scene.shift[profile]!;
    for (const lane of lanes) lane.loaded = loaded; // asked for: not again
    this.running += 1;
    try {
      const ids = lanes.map(({ id }) => id).sort((a, b) => a - b);
      const { head, bytes, base } = await askBlock({
        p: profile, lanes: ids.join(","), from: Math.floor(loaded.from - shift), to: Math.ceil(loaded.to - shift), px: loaded.pixels, q: search,
      });
      // A block that was overtaken is of no use: the lane has been asked for anew, or has been moved.
      const fresh = lanes.every((lane) => lane.loaded === loaded);
      if (fresh) for (const [id, marks] of marksOf(head, bytes, base, shift)) this.scene.take(profile, id, marks, loaded, head.texts);
    } catch (reason) {
      for (const lane of lanes) if (lane.loaded === loaded) lane.loaded = null;
      this.wanted = null; // the next move tries again
      if (!(reason instanceof Lost)) this.failed((reason as Error).message);
      return;
    } finally {
      this.running -= 1;
    }
    this.arrived();
    this.next();
  }
}
