// The page of `stepscope serve`: the whole trace, what a span or a mark is made of, and what the findings point at.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { Prose } from "../section";
import { ThemeButton } from "../theme";
import { placeFacts, Tip } from "../timeline/about";
import { isBucket, type Picked, rowOf } from "../timeline/model";
import { firstOpen, layout } from "../timeline/rows";
import { type Control, type Hit, Stage } from "../timeline/stage";
import { Legend } from "../timeline/timeline";
import type { Finding, Place, StepRow } from "../types";
import { arrowsOf } from "./arrows";
import { ask, Lost } from "./ask";
import { Below } from "./below";
import { Help } from "./help";
import { findingKey, useHistory } from "./history";
import { type Linked, readLink } from "./link";
import { Loader } from "./loader";
import { LostPanel, useConnection } from "./lost";
import { Overview, type OverviewControl } from "./overview";
import { DetailsPanel, SearchPanel, SpanPanel } from "./panels";
import { arranged, type Sort } from "./ranks";
import { closedAtFirst, keyOf, NAMES, sampled, type Scene, type SceneLane, stepAt } from "./scene";
import { SqlSection } from "./sql";
import { useConclusions, useSearch, useSpan } from "./state";
import { FocusTool, RankTools, SearchTool, StepTool, TrackTool } from "./tools";
import type { DetailsData, MatchData } from "./types";

const linked = readLink();
const NOWHERE: Place[] = [];

export function App({ scene }: { scene: Scene }) {
  const { profiles } = scene.data;
  const control = useRef<Control | null>(null);
  const overview = useRef<OverviewControl | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const query = useRef<HTMLTextAreaElement>(null);
  const [version, setVersion] = useState(0);
  const [failed, setFailed] = useState("");
  const [open, setOpen] = useState(() => firstOpen(scene));
  const [closed, setClosed] = useState(() => closedAtFirst(scene, linked.closed));
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
  const [finding, setFinding] = useState(linked.finding ?? "");
  const [place, setPlace] = useState(linked.place ?? 0);
  const [step, setStep] = useState(linked.step ?? 0);
  const [seenStep, setSeenStep] = useState(-1);
  const [sql, setSql] = useState(linked.sql ?? "");
  const [helped, setHelped] = useState(false);
  const view = useRef<[number, number]>([0, scene.end]);
  const conclusions = useConclusions(profiles.length);
  const connection = useConnection();
  const found = useSearch(profiles.length, wanted);
  const findings = conclusions[0]?.findings?.rows ?? [];
  const shownFinding = findings.find((each) => findingKey(findings, each) === finding);
  const places = shownFinding?.where ?? NOWHERE;
  const late = conclusions[0]?.late ?? {};
  const hosts = useMemo(() => new Map(profiles.flatMap(({ ranks }, p) => ranks.map(({ rank, host }) => [keyOf(p, rank), host ?? ""]))), [scene]);
  const shown = useMemo(() => arranged(scene.ranks, pinned, filter, sort, late, hosts), [scene, pinned, filter, sort, late]);
  const { rows, height } = useMemo(() => layout(shown, open, closed), [shown, open, closed]);
  const kinds = useMemo(() => new Set(scene.ranks.flatMap(({ lanes }) => lanes.map(({ group }) => group))), [scene]);
  const spans = useSpan(scene, settled ? span : null, shown);
  const arrows = useMemo(() => arrowsOf(scene, selected, details), [details]);
  const nav = () => control.current!.nav;

  const loader = useMemo(() => new Loader(scene, () => setVersion((v) => v + 1), setFailed), [scene]);
  useEffect(() => {
    if (connection.state === "there") setVersion((v) => v + 1); // what was asked for meanwhile is asked for again
  }, [connection.state]);
  const { remember, jump } = useHistory(() => {
    const [from, to] = view.current, lane = selected?.lane as SceneLane | undefined;
    return {
      from, to, search: wanted, filter, sort, closed: [...closed], step, pinned: [...pinned], finding, place, sql,
      ...(span && { span }), ...(lane && { selected: [lane.profile, lane.id, selected!.row] as [number, number, number] }),
    };
  }, (to) => apply(to));
  const seen = useCallback((from: number, to: number, top: number, bottom: number, pixels: number) => {
    view.current = [from, to];
    overview.current?.framed(from, to);
    setSeenStep(stepAt(profiles[0]!.steps, from, to));
    const inView = rows.filter((row) => row.top + row.height > top - 40 && row.top < bottom + 40);
    loader.show({ from, to, rows: inView, pixels, search: found.error ? "" : found.wanted });
    remember();
  }, [rows, loader, found]);
  useEffect(remember, [selected, span, wanted, filter, sort, closed, pinned, step, finding, place, sql]);
  useEffect(() => {
    if (linked.from !== undefined && linked.to !== undefined) nav().show(linked.from, linked.to, 0, false);
    if (linked.selected) void pick(...linked.selected, false);
    if (profiles.length > 1) align(step, false);
  }, [scene]);
  /** What an address says: all of it, so that Back leads to what there was. */
  const apply = (to: Linked) => {
    setWanted(to.search ?? "");
    setCurrent(-1);
    setFilter(to.filter ?? "");
    setSort((to.sort as Sort) ?? "rank");
    setPinned(new Set(to.pinned ?? []));
    setClosed(closedAtFirst(scene, to.closed));
    setSpan(to.span ?? null);
    setFinding(to.finding ?? "");
    setPlace(to.place ?? 0);
    setSql(to.sql ?? "");
    if (to.selected) void pick(...to.selected, false);
    else clear();
    if (profiles.length > 1) align(to.step ?? 0, false);
    nav().show(to.from ?? 0, to.to ?? scene.end, 0);
  };
  /** Show a stretch of time; Back leads away from it. */
  const visit = (from: number, to: number, room = 0) => {
    jump();
    nav().show(from, to, room);
  };

  /** Steps of the second profile below those of the first. */
  const align = (k: number, go = true) => {
    const to = profiles[0]!.steps[k];
    profiles.slice(1).forEach(({ steps }, i) => {
      const own = steps[Math.min(k, steps.length - 1)];
      scene.align(i + 1, to && own ? to.start - own.start : 0);
    });
    setStep(k);
    setVersion((v) => v + 1);
    if (go && to) visit(to.start, to.end, 0.02);
  };
  const reveal = (key: number, stream: number | null, from: number, to: number, lane: SceneLane | null = null, onHost = false) => {
    const now = new Set(closed);
    if (lane) now.delete(lane.group);
    if (onHost) now.delete("host");
    setClosed(now);
    setOpen((before) => (before.has(key) ? before : new Set(before).add(key)));
    nav().show(from, to, 0.6);
    requestAnimationFrame(() => {
      const mine = layout(shown, new Set(open).add(key), now).rows.filter((row) => row.rank.key === key);
      const row = mine.find((r) => (lane ? r.lane === lane : r.lane?.group === "streams" && r.lane.level === stream)) ?? mine[0];
      if (row) control.current!.reveal(row.top, row.height);
    });
  };
  const fail = (reason: unknown) => { if (!(reason instanceof Lost)) setFailed((reason as Error).message); };
  /** Select a mark, and go there. */
  const pick = async (profile: number, id: number, row: number, go = true) => {
    const lane = scene.lanes[profile]?.[id];
    if (!lane) return;
    if (go) jump();
    setSelected({ lane, row });
    try {
      const data = await ask<DetailsData>("details", { p: profile, lane: id, row });
      setDetails(data);
      const shift = scene.shift[profile]!;
      if (go) reveal(keyOf(profile, data.rank), null, data.start + shift, data.end + shift, lane);
    } catch (reason) {
      setDetails(null);
      fail(reason);
    }
  };
  const picked = (hit: Hit | null) => {
    const lane = hit?.lane as SceneLane | undefined;
    if (!hit || !lane || lane.group === "counters") return selected ? (jump(), clear()) : undefined;
    if (isBucket(lane, hit.mark)) { // too many to tell apart: closer
      const start = lane.marks.start[hit.mark]!;
      visit(start, start + lane.marks.dur[hit.mark]!, 4);
    } else {
      jump();
      void pick(lane.profile, lane.id, rowOf(lane, hit.mark), false);
    }
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
    if (target) visit(...target, 0.2);
  };
  const neighbour = (by: number) => {
    const lane = selected?.lane as SceneLane | undefined;
    const row = (selected?.row ?? 0) + by;
    if (lane && row >= 0 && row < lane.about.n) void pick(lane.profile, lane.id, row);
  };
  const matched = useRef(-1);
  /** From match to match; where the last one is out of view, on from what is looked at. */
  const next = async (by: number) => {
    const counts = found.answers.map((answer) => answer.count), total = counts.reduce((sum, n) => sum + n, 0);
    if (!total) return;
    const [from, to] = view.current;
    const first = counts[0] ? 0 : 1;
    try {
      let k = current + by;
      if (current < 0 || matched.current < from || matched.current > to) {
        const at = Math.round(Math.max(from - scene.shift[first]!, -scene.end));
        const near = await ask<MatchData>("match", { p: first, q: found.wanted, at });
        k = (first ? counts[0]! : 0) + near.k - (by < 0 ? 1 : 0);
      }
      k = ((k % total) + total) % total;
      setCurrent(k);
      const profile = k < counts[0]! ? 0 : 1;
      const match = await ask<MatchData>("match", { p: profile, q: found.wanted, k: profile ? k - counts[0]! : k });
      matched.current = match.start + scene.shift[profile]!;
      await pick(profile, match.lane, match.row);
    } catch (reason) {
      fail(reason);
    }
  };
  const show = (chosen: Finding) => {
    jump();
    setFinding(findingKey(findings, chosen));
    goTo(chosen.where, 0);
    scrollTo({ top: 0, behavior: "smooth" });
  };
  const goToStep = ({ label }: StepRow) => {
    const at = profiles[0]!.steps.find((each) => each.label === label);
    if (at) visit(at.start, at.end, 0.1);
    scrollTo({ top: 0, behavior: "smooth" });
  };
  const goTo = (all: Place[], index: number) => {
    const target = all[((index % all.length) + all.length) % all.length];
    if (!target) return;
    setPlace(all.indexOf(target));
    reveal(target.rank, target.stream, target.start, target.end, null, target.stream === null);
  };
  const showRow = (profile: number, rank: number, start: number, end: number) => {
    jump();
    const shift = scene.shift[profile]!;
    setSpan([start + shift, end + shift]);
    reveal(keyOf(profile, rank), null, start + shift, end + shift);
    scrollTo({ top: 0, behavior: "smooth" });
  };
  const toggle = <T,>(set: Set<T>, key: T) => {
    const now = new Set(set);
    if (!now.delete(key)) now.add(key);
    return now;
  };
  const keys = {
    f: frame,
    m: () => { jump(); setSpan(here()); },
    "/": () => input.current!.focus(),
    n: () => void next(1),
    p: () => void next(-1),
    "0": () => visit(0, scene.end),
    "?": () => setHelped(true),
    q: () => {
      (document.getElementById("sql") as HTMLDetailsElement).open = true;
      query.current!.focus();
    },
    ".": () => neighbour(1),
    ",": () => neighbour(-1),
    Escape: () => { jump(); clear(); setSpan(null); },
  };
  const facts = ({ row, lane, mark }: Hit): [string, string][] => {
    const of = lane as SceneLane, { about, marks } = of;
    const rows = placeFacts(row.rank, lane, mark);
    if (about.group === "counters") {
      const [low, high] = [sampled(about, marks.sent!.row[mark]!), sampled(about, marks.n[mark]!)];
      return [rows[0]!, rows[1]!, ["value", low === high ? high : `${low} to ${high}`]];
    }
    if (isBucket(of, mark) && about.group !== "parts") rows.push(["busy", `${((100 * marks.sent!.busy[mark]!) / 255).toFixed(0)} %`]);
    return rows;
  };
  const pending = conclusions.every((each) => each?.ready) ? "" : `computing… ${Math.max(0, ...conclusions.map((each) => each?.seconds ?? 0)).toFixed(0)} s`;

  return (
    <>
      <nav class="served-nav">
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
            <SearchTool found={found} wanted={wanted} setWanted={(text) => { setWanted(text); setCurrent(-1); }} current={current}
              next={(by) => void next(by)} list={() => setListed(!listed)} input={input} />
            {shownFinding && <FocusTool title={shownFinding.title} places={places} place={place}
              go={(index) => { jump(); goTo(places, index); }} forget={() => { jump(); setFinding(""); }} />}
            <span class="spring" />
            <StepTool steps={profiles[0]!.steps} aligns={profiles.length > 1} step={profiles.length > 1 ? step : seenStep}
              go={(k) => (k < 0 ? visit(0, scene.end) : align(k))} />
            <RankTools filter={filter} setFilter={setFilter} sort={sort} setSort={setSort} late={Object.keys(late).length > 0} />
            <TrackTool kinds={kinds} closed={closed} toggle={(kind) => setClosed(toggle(closed, kind))}
              fold={(all) => setOpen(new Set(all ? [] : scene.ranks.map(({ key }) => key)))} />
            <button type="button" onClick={() => nav().scale(2)} aria-label="Zoom in">+</button>
            <button type="button" onClick={() => nav().scale(0.5)} aria-label="Zoom out">−</button>
            <button type="button" onClick={() => visit(0, scene.end)}>all</button>
            <button type="button" onClick={() => setHelped(true)} aria-label="Keys">?</button>
          </div>
          <Overview scene={scene} control={overview} go={(from, to, begins) => {
            if (begins) jump();
            nav().show(from, to, 0, false);
          }} />
          <Stage model={scene} rows={rows} height={height} open={open} most="fill" searched={found.wanted !== "" && !found.error}
            selected={selected} places={places} place={place} arrows={arrows} span={span} version={version} control={control}
            pinned={pinned} onPin={(key) => setPinned(toggle(pinned, key))} onPick={picked} onFold={(key) => setOpen(toggle(open, key))}
            onSpan={(now, done) => { if (settled) jump(); setSpan(now); setSettled(done); }} onView={seen} keys={keys}
            label="Timeline of the whole capture. Keys: w and s zoom, a and d move, f frames, m measures, 0 shows all, ? lists all."
            tip={(hit) => <Tip title={scene.title(hit.lane as SceneLane, hit.mark)} rows={facts(hit)} />} />
          <p class="dim hint">
            <Legend />
            <span class="keyboard">Drag to move, Ctrl + wheel to zoom, drag on the axis to measure; <kbd>?</kbd> lists the keys.</span>
            {" "}{count(profiles.reduce((sum, { ops }) => sum + ops, 0), "op")}.
          </p>
          <LostPanel connection={connection} command={scene.data.command} />
          {failed && <p class="failed" role="alert"><Prose text={failed} /> <button type="button" onClick={() => setFailed("")}>dismiss</button></p>}
          <div class="panels">
            {listed && found.wanted && found.answers.map((answer) => <SearchPanel data={answer} close={() => setListed(false)} />)}
            {details && <DetailsPanel data={details} close={clear} frame={frame} />}
            {span && spans.map((data, p) => data && <SpanPanel data={data} name={profiles.length > 1 ? `${NAMES[p]}: ` : ""} close={() => setSpan(null)} />)}
          </div>
          <SqlSection query={sql} setQuery={(text) => { jump(); setSql(text); }} profiles={profiles.length} show={showRow} input={query} />
        </section>
        <Below scene={scene} concluded={conclusions[0] ?? null} pending={pending} show={show} goToStep={goToStep} />
      </main>
      {helped && <Help close={() => setHelped(false)} />}
    </>
  );
}
