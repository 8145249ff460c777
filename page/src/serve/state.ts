// What the page asks the server beside views, and when.

import { useEffect, useState } from "preact/hooks";
import type { RankLanes } from "../timeline/model";
import { ask } from "./ask";
import { isThere } from "./connection";
import { keyOf, type Scene } from "./scene";
import type { Conclusion, SearchData, SpanData } from "./types";

/** Findings take longer than the drawing: ask until they are there, and how far they are. */
export function useConclusions(profiles: number): (Conclusion | null)[] {
  const [all, setAll] = useState<(Conclusion | null)[]>(() => Array<null>(profiles).fill(null));
  useEffect(() => {
    let stopped = false;
    const look = async (p: number) => {
      for (let wait = 300; !stopped; wait = Math.min(wait * 1.3, 2_000)) {
        const answer = isThere() ? await ask<Conclusion>("findings", { p }).catch(() => null) : null;
        if (answer) setAll((before) => before.map((old, i) => (i === p ? answer : old)));
        if (answer?.ready) return;
        await new Promise((done) => setTimeout(done, wait));
      }
    };
    for (let p = 0; p < profiles; p++) void look(p);
    return () => { stopped = true; };
  }, [profiles]);
  return all;
}

export interface Searched {
  /** What the answers are about. */
  wanted: string;
  answers: SearchData[];
  error: string | null;
}

export function useSearch(profiles: number, wanted: string): Searched {
  const [found, setFound] = useState<Searched>({ wanted: "", answers: [], error: null });
  useEffect(() => {
    const text = wanted.trim();
    if (!text) {
      setFound({ wanted: "", answers: [], error: null });
      return;
    }
    let stopped = false;
    const timer = setTimeout(async () => {
      const asked = Array.from({ length: profiles }, (_, p) => ask<SearchData>("search", { p, q: text }));
      const answers = await Promise.all(asked).catch(() => []);
      if (!stopped) setFound({ wanted: text, answers, error: answers.find(({ error }) => error)?.error ?? null });
    }, 180);
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [profiles, wanted]);
  return found;
}

/** By profile: the figures of a span on the ranks that are shown. */
export function useSpan(scene: Scene, span: [number, number] | null, shown: RankLanes[]): (SpanData | null)[] {
  const [data, setData] = useState<(SpanData | null)[]>([]);
  const keys = shown.map(({ key }) => key).join();
  useEffect(() => {
    setData([]);
    if (!span) return;
    let stopped = false;
    const asked = scene.data.profiles.map(async ({ ranks }, p) => {
      const wanted = ranks.filter(({ rank }) => shown.some(({ key }) => key === keyOf(p, rank))).map(({ rank }) => rank);
      const [from, to] = span.map((moment) => Math.round(moment - scene.shift[p]!));
      return wanted.length ? ask<SpanData>("span", { p, from: from!, to: to!, ranks: wanted.join() }).catch(() => null) : null;
    });
    void Promise.all(asked).then((answers) => { if (!stopped) setData(answers); });
    return () => { stopped = true; };
  }, [scene, span?.[0], span?.[1], keys]);
  return data;
}
