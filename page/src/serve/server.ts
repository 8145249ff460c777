// A timeline's source that asks the server.

import type { DetailsData, MatchData, SearchData, SpanData } from "../messages";
import { type Marks, marksOf } from "../timeline/marks";
import type { Scene } from "../timeline/scene";
import type { Measured, Source, Wanted } from "../timeline/source";
import { ask, askBlock } from "./ask";
import { Loader } from "./loader";

export class Server implements Source {
  heard: Source["heard"] = { arrived: () => undefined, failed: () => undefined };
  readonly pause = 180;
  private readonly loader: Loader;

  constructor(private readonly scene: Scene) {
    this.loader = new Loader(scene, () => this.heard.arrived(), (reason) => this.heard.failed(reason));
  }

  show(wanted: Wanted): void {
    this.loader.show(wanted);
  }

  search(wanted: string): Promise<SearchData[]> {
    return Promise.all(this.scene.profiles.map((_, p) => ask<SearchData>("search", { p, q: wanted })));
  }

  match(p: number, wanted: string, where: { k: number } | { at: number }): Promise<MatchData> {
    return ask("match", { p, q: wanted, ...where });
  }

  details(p: number, lane: number, row: number): Promise<DetailsData> {
    return ask("details", { p, lane, row });
  }

  span(p: number, ranks: number[], from: number, to: number): Promise<Measured> {
    return ask<SpanData>("span", { p, from, to, ranks: ranks.join() });
  }

  async parts(p: number, lanes: number[], pixels: number): Promise<Marks[]> {
    const shift = this.scene.shift[p]!, from = Math.floor(-shift), to = Math.ceil(this.scene.end - shift);
    const { head, bytes, base } = await askBlock({ p, lanes: lanes.join(), from, to, px: pixels, q: "" });
    return marksOf(head, bytes, base, shift).map(([, marks]) => marks);
  }
}
