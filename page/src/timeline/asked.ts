// What is asked of a source as the reader types and drags.

import { useEffect, useState } from "preact/hooks";
import type { SearchData } from "../messages";
import type { RankLanes } from "./marks";
import { keyOf, type Scene } from "./scene";
import type { Measured, Source } from "./source";

export interface Searched {
  /** What the answers are about. */
  wanted: string;
  answers: SearchData[];
  error: string | null;
}

const NOTHING: Searched = { wanted: "", answers: [], error: null };

export function useSearch(source: Source, wanted: string): Searched {
  const [found, setFound] = useState(NOTHING);
  useEffect(() => {
    const text = wanted.trim();
    if (!text) {
      setFound(NOTHING);
      return;
    }
    let stopped = false;
    const timer = setTimeout(async () => {
      const answers = await source.search(text).catch(() => []);
      if (!stopped) setFound({ wanted: text, answers, error: answers.find(({ error }) => error)?.error ?? null });
    }, source.pause);
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [source, wanted]);
  return found;
}

/** By profile: the figures of a span on the ranks that are shown. */
export function useSpan(scene: Scene, source: Source, span: [number, number] | null, shown: RankLanes[]): (Measured | null)[] {
  const [data, setData] = useState<(Measured | null)[]>([]);
  const keys = shown.map(({ key }) => key).join();
  useEffect(() => {
    setData([]);
    if (!span) return;
    let stopped = false;
    const asked = scene.profiles.map(async ({ ranks }, p) => {
      const wanted = ranks.filter(({ rank }) => shown.some(({ key }) => key === keyOf(p, rank))).map(({ rank }) => rank);
      const [from, to] = span.map((moment) => Math.round(moment - scene.shift[p]!));
      return wanted.length ? source.span(p, wanted, from!, to!).catch(() => null) : null;
    });
    void Promise.all(asked).then((answers) => { if (!stopped) setData(answers); });
    return () => { stopped = true; };
  }, [scene, source, span?.[0], span?.[1], keys]);
  return data;
}
