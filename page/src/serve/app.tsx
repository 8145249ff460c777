// The page of `stepscope serve`: the whole trace, what a span or a mark is made of, and what the findings point at.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { FindingList, Statement } from "../findings";
import { bytes, count, duration } from "../format";
import { NoteItems, Prose } from "../section";
import { ThemeButton } from "../theme";
import { placeFacts, Tip } from "../timeline/about";
import { FULL, isBucket, type Picked, rowOf } from "../timeline/model";
import { firstOpen, layout } from "../timeline/rows";
import { type Control, type Hit, Stage } from "../timeline/stage";
import { Legend } from "../timeline/timeline";
import type { Finding, Place } from "../types";
import { arrowsOf } from "./arrows";
import { ask } from "./ask";
import { readLink, writeLink } from "./link";
import { Loader } from "./loader";
import { DetailsPanel, SearchPanel, SpanPanel } from "./panels";
import { arranged, type Sort, SORTS } from "./ranks";
import { hasFewFunctions, keyOf, NAMES, type Scene, type SceneLane } from "./scene";
import { useConclusions, useSearch, useSpan } from "./state";
import type { DetailsData, MatchData } from "./types";

const linked = readLink();

export function App({ scene }: { scene: Scene }) {
  const { profiles } = scene.data;
  const control = useRef<Control | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const [version, setVersion] = useState(0);
  const [failed, setFailed] = useState("");
  const [open, setOpen] = useState(() => firstOpen(scene));
  const [host, setHost] = useState(linked.host ?? scene.ranks.length <= 2);
  const [functions, setFunctions] = useState(linked.functions ?? hasFewFunctions(scene));
  const [pinned, setPinned] = useState(() => new Set(linked.pinned ?? []));
  const [filter, setFilter] = useState(linked.filter ?? "");
  const [sort, setSort] = useState<Sort>((linked.sort as Sort) ?? "rank");
  const [wanted, setWanted] = useState(linked.search ?? "");
  const [current, setCurrent] = useState(-1);
  const [listed, setListed] = useState(false);
  const [selected, setSelected] = useState<Picked | null>(null);
  const [details, setDetails] = useState<DetailsData | null>(null);
  const [span, setSpan] = useState<[number, number] | null>(linked.span ?? null);
  const [settled, setSettled] = useState(true);
  const [focus, setFocus] = useState<{ title: string; places: Place[] }>({ title: "", places: [] });
  const [place, setPlace] = useState(0);
  const [step, setStep] = useState(linked.step ?? 0);
  const view = useRef<[number, number]>([0, scene.end]);
  const conclusions = useConclusions(profiles.length);
  const found = useSearch(profiles.length, wanted);
  const late = conclusions[0]?.late ?? {};
  const hosts = useMemo(() => new Map(profiles.flatMap(({ ranks }, p) => ranks.map(({ rank, host }) => [keyOf(p, rank), host ?? ""]))), [scene]);
  const shown = useMemo(() => arranged(scene.ranks, pinned, filter, sort, late, hosts), [scene, pinned, filter, sort, late]);
  const { rows, height } = useMemo(() => layout(shown, open, host, functions), [shown, open, host, functions]);
  const spans = useSpan(scene, settled ? span : null, shown);
  const arrows = useMemo(() => arrowsOf(scene, selected, details), [details]);
  const nav = () => control.current!.nav;

  const loader = useMemo(() => new Loader(scene, () => setVersion((v) => v + 1), setFailed), [scene]);
  const seen = useCallback((from: number, to: number, top: number, bottom: number, pixels: number) => {
    view.current = [from, to];
    const inView = rows.filter((row) => row.top + row.height > top - 40 && row.top < bottom + 40);
    loader.show({ from, to, rows: inView, pixels, search: found.error ? "" : found.wanted });
    remember();
  }, [rows, loader, found]);
  const timer = useRef(0);
  const linkNow = useRef(() => {});
  linkNow.current = () => {
    const [from, to] = view.current, lane = selected?.lane as SceneLane | undefined;
    writeLink({
      from, to, search: wanted, filter, sort, host, functions, step, pinned: [...pinned],
      ...(span && { span }), ...(lane && { selected: [lane.profile, lane.id, selected!.row] as [number, number, number] }),
    });
  };
  const remember = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => linkNow.current(), 250);
  };
  useEffect(remember, [selected, span, wanted, filter, sort, host, functions, pinned, step]);
  useEffect(() => {
    if (linked.from !== undefined && linked.to !== undefined) nav().show(linked.from, linked.to, 0, false);
    if (linked.selected) void pick(...linked.selected, false);
    if (profiles.length > 1) align(step, false);
  }, [scene]);

  /** Steps of the second profile below those of the first. */
  const align = (k: number, go = true) => {
    const to = profiles[0]!.steps[k];
    profiles.slice(1).forEach(({ steps }, i) => {
      const own = steps[Math.min(k, steps.length - 1)];
      scene.align(i + 1, to && own ? to.start - own.start : 0);
    });
    setStep(k);
    setVersion((v) => v + 1);
    if (go && to) nav().show(to.start, to.end, 0.02);
  };
  const reveal = (key: number, stream: number | null, from: number, to: number, onHost = host, lane: SceneLane | null = null) => {
    const within = functions || lane?.group === "functions";
    setHost(onHost);
    setFunctions(within);
    setOpen((before) => (before.has(key) ? before : new Set(before).add(key)));
    nav().show(from, to, 0.6);
    requestAnimationFrame(() => {
      const mine = layout(shown, new Set(open).add(key), onHost, within).rows.filter((row) => row.rank.key === key);
      const row = mine.find((r) => (lane ? r.lane === lane : r.lane?.group === "streams" && r.lane.level === stream)) ?? mine[0];
      if (row) control.current!.reveal(row.top, row.height);
    });
  };
  /** Select a mark, and go there. */
  const pick = async (profile: number, id: number, row: number, go = true) => {
    const lane = scene.lanes[profile]?.[id];
    if (!lane) return;
    setSelected({ lane, row });
    try {
      const data = await ask<DetailsData>("details", { p: profile, lane: id, row });
      setDetails(data);
      const shift = scene.shift[profile]!;
      if (go) reveal(keyOf(profile, data.rank), null, data.start + shift, data.end + shift, host || lane.group === "host", lane);
    } catch (reason) {
      setDetails(null);
      setFailed((reason as Error).message);
    }
  };
  const picked = (hit: Hit | null) => {
    const lane = hit?.lane as SceneLane | undefined;
    if (!hit || !lane || lane.group === "counters") return clear();
    if (isBucket(lane, hit.mark)) { // too many to tell apart: closer
      const start = lane.marks.start[hit.mark]!;
      nav().show(start, start + lane.marks.dur[hit.mark]!, 4);
    } else void pick(lane.profile, lane.id, rowOf(lane, hit.mark), false);
  };
  const clear = () => {
    setSelected(null);
    setDetails(null);
  };
  const here = (): [number, number] | null => {
    if (!details || !selected) return span;
    const shift = scene.shift[(selected.lane as SceneLane).profile]!;
    return [details.start + shift, Math.max(details.end, details.start + 1) + shift];
  };
  const frame = () => {
    const target = here();
    if (target) nav().show(...target, 0.2);
  };
  const neighbour = (by: number) => {
    const lane = selected?.lane as SceneLane | undefined;
    const row = (selected?.row ?? 0) + by;
    if (lane && row >= 0 && row < lane.about.n) void pick(lane.profile, lane.id, row);
  };
  const total = found.answers.reduce((sum, answer) => sum + answer.count, 0);
  const onGpu = found.answers.reduce((sum, answer) => sum + answer.total_ns, 0);
  const next = async (by: number) => {
    if (!total) return;
    let k = ((current + by) % total + total) % total;
    setCurrent(k);
    const profile = k < found.answers[0]!.count ? 0 : 1;
    if (profile) k -= found.answers[0]!.count;
    try {
      const match = await ask<MatchData>("match", { p: profile, q: found.wanted, k });
      await pick(profile, match.lane, match.row);
    } catch (reason) {
      setFailed((reason as Error).message);
    }
  };
  const show = (finding: Finding) => {
    setFocus({ title: finding.title, places: finding.where });
    goTo(finding.where, 0);
    scrollTo({ top: 0, behavior: "smooth" });
  };
  const goTo = (places: Place[], index: number) => {
    const target = places[((index % places.length) + places.length) % places.length];
    if (!target) return;
    setPlace(places.indexOf(target));
    reveal(target.rank, target.stream, target.start, target.end, host || target.stream === null);
  };
  const toggle = (set: Set<number>, key: number) => {
    const now = new Set(set);
    if (!now.delete(key)) now.add(key);
    return now;
  };
  const keys = {
    f: frame,
    m: () => setSpan(here()),
    "/": () => input.current!.focus(),
    ".": () => neighbour(1),
    ",": () => neighbour(-1),
    Escape: () => { clear(); setSpan(null); },
  };
  const facts = ({ row, lane, mark }: Hit): [string, string][] => {
    const of = lane as SceneLane, { about, marks } = of;
    const rows = placeFacts(row.rank, lane, mark);
    if (about.group === "counters") {
      const number = (part: number) => ((about.most ?? 1) * part) / FULL;
      const said = (part: number) => (about.unit === "bytes" ? bytes(Math.round(number(part))) : String(Number(number(part).toPrecision(4))));
      const [low, high] = [said(marks.sent!.row[mark]!), said(marks.n[mark]!)];
      return [rows[0]!, rows[1]!, ["value", low === high ? high : `${low} to ${high}`]];
    }
    if (isBucket(of, mark) && about.group !== "parts") rows.push(["busy", `${((100 * marks.sent!.busy[mark]!) / 255).toFixed(0)} %`]);
    return rows;
  };
  const concluded = conclusions[0];
  const pending = conclusions.every((each) => each?.ready) ? "" : `computing… ${Math.max(0, ...conclusions.map((each) => each?.seconds ?? 0)).toFixed(0)} s`;

  return (
    <>
      <nav>
        <b>stepscope</b>
        <a href="#findings" onClick={(e) => { e.preventDefault(); document.getElementById("findings")?.scrollIntoView({ behavior: "smooth" }); }}>Findings</a>
        {pending && <span class="dim pending" role="status">{pending}</span>}
        <span class="spring" />
        <ThemeButton />
      </nav>
      <main class="served">
        {profiles.map(({ source, paths }, p) => <p class="source">{profiles.length > 1 && <><b>{NAMES[p]}: {paths.join(" ")}</b> · </>}{source}</p>)}
        <section id="timeline" class={details || span || (listed && found.wanted) ? "paneled" : ""}>
          <div class="tools">
            <input ref={input} type="search" placeholder="Search names, or /regex/" aria-label="Search the timeline" value={wanted}
              onInput={(e) => { setWanted(e.currentTarget.value); setCurrent(-1); }}
              onKeyDown={(e) => { if (e.key === "Enter") void next(e.shiftKey ? -1 : 1); if (e.key === "Escape") e.currentTarget.blur(); }} />
            {found.wanted && (
              <span class="found" role="status">
                {found.error ?? `${current >= 0 ? `${(current + 1).toLocaleString("en")} of ` : ""}${count(total, "match", "matches")}${onGpu ? `, ${duration(onGpu)}` : ""}`}
                <button type="button" onClick={() => void next(-1)} aria-label="Previous match">‹</button>
                <button type="button" onClick={() => void next(1)} aria-label="Next match">›</button>
                <button type="button" onClick={() => setListed(!listed)}>list</button>
              </span>
            )}
            {focus.title && (
              <span class="focus" role="status">
                <b>{focus.title}</b>
                {focus.places.length > 1 && <>
                  <button type="button" onClick={() => goTo(focus.places, place - 1)} aria-label="Previous place">‹</button>
                  {place + 1} of {focus.places.length}
                  <button type="button" onClick={() => goTo(focus.places, place + 1)} aria-label="Next place">›</button>
                </>}
                <button type="button" onClick={() => setFocus({ title: "", places: [] })} aria-label="Forget the finding">×</button>
              </span>
            )}
            <span class="spring" />
            {profiles[0]!.steps.length > 0 && (
              <select aria-label={profiles.length > 1 ? "Align on this step" : "Go to a step"} value={step} onChange={(e) => align(Number(e.currentTarget.value))}>
                {profiles[0]!.steps.map(({ label }, k) => <option value={k}>{label}</option>)}
              </select>
            )}
            <input type="text" class="ranks" placeholder="ranks: 0,3-5" title="Numbers, or a part of the host or place" aria-label="Only these ranks" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
            <select aria-label="Order of ranks" value={sort} onChange={(e) => setSort(e.currentTarget.value as Sort)}>
              {SORTS.map(([key, title]) => <option value={key} disabled={key === "culprit" && !Object.keys(late).length}>{title}</option>)}
            </select>
            <label><input type="checkbox" checked={host} onChange={(e) => setHost(e.currentTarget.checked)} /> host</label>
            {scene.ranks.some(({ lanes }) => lanes.some(({ group }) => group === "functions")) && (
              <label title="Torch ops, Python functions and other calls of the host's threads">
                <input type="checkbox" checked={functions} onChange={(e) => setFunctions(e.currentTarget.checked)} /> functions
              </label>
            )}
            <button type="button" onClick={() => nav().scale(2)} aria-label="Zoom in">+</button>
            <button type="button" onClick={() => nav().scale(0.5)} aria-label="Zoom out">−</button>
            <button type="button" onClick={() => nav().whole()}>all</button>
          </div>
          <Stage model={scene} rows={rows} height={height} open={open} most="fill" searched={found.wanted !== "" && !found.error}
            selected={selected} places={focus.places} place={place} arrows={arrows} span={span} version={version} control={control}
            pinned={pinned} onPin={(key) => setPinned(toggle(pinned, key))} onPick={picked} onFold={(key) => setOpen(toggle(open, key))}
            onSpan={(now, done) => { setSpan(now); setSettled(done); }} onView={seen} keys={keys}
            label="Timeline of the whole capture. Keys: w and s zoom, a and d move, f frames, m measures, 0 shows all."
            tip={(hit) => <Tip title={scene.title(hit.lane as SceneLane, hit.mark)} rows={facts(hit)} />} />
          <p class="dim hint">
            <Legend />
            <span class="keyboard">Keys <kbd>w</kbd> <kbd>s</kbd> <kbd>a</kbd> <kbd>d</kbd>, <kbd>f</kbd> frame, <kbd>m</kbd> measure, <kbd>.</kbd> <kbd>,</kbd> next and
            previous, <kbd>/</kbd> search, <kbd>0</kbd> all. Drag on the axis, or with Shift, to measure.</span> {count(profiles.reduce((sum, { ops }) => sum + ops, 0), "op")}.
          </p>
          {failed && <p class="failed" role="alert"><Prose text={failed} /> <button type="button" onClick={() => setFailed("")}>dismiss</button></p>}
          <div class="panels">
            {listed && found.wanted && found.answers.map((answer) => <SearchPanel data={answer} close={() => setListed(false)} />)}
            {details && <DetailsPanel data={details} close={clear} frame={frame} />}
            {span && spans.map((data, p) => data && <SpanPanel data={data} name={profiles.length > 1 ? `${NAMES[p]}: ` : ""} close={() => setSpan(null)} />)}
          </div>
        </section>
        {!concluded?.ready && <section id="findings"><p class="dim">Findings: {pending}{concluded?.doing && ` (${concluded.doing})`}</p></section>}
        {concluded?.why && <section id="findings"><p class="dim">No findings: <Prose text={concluded.why} /></p></section>}
        {concluded?.findings && <>
          <div class="hero"><Statement findings={concluded.findings} /></div>
          <FindingList findings={concluded.findings} show={show} />
        </>}
        <section id="notes">
          <header><h2>What it rests on</h2></header>
          {profiles.map(({ notes }, p) => notes.length > 0 && <ul>
            {profiles.length > 1 && <li><b>{NAMES[p]}</b></li>}
            <NoteItems notes={notes} />
          </ul>)}
          {profiles.every(({ notes }) => !notes.length) && <p class="dim">No notes.</p>}
          <p class="dim">stepscope {scene.data.version}</p>
        </section>
      </main>
    </>
  );
}
