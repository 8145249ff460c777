// The page of `stepscope serve`: the whole trace, queries in SQL, and what the findings point at.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Finding, Place, SceneData, StepRow } from "../messages";
import { ThemeButton } from "../theme";
import type { Linked } from "../timeline/linked";
import { NAMES, Scene } from "../timeline/scene";
import { useTimeline } from "../timeline/state";
import { paneled, Timeline } from "../timeline/timeline";
import { Lost } from "./ask";
import { Below } from "./below";
import { findingKey, type Remembered, useHistory } from "./history";
import { readLink } from "./link";
import { LostPanel, useConnection } from "./lost";
import { Server } from "./server";
import { SqlSection } from "./sql";
import { useConclusions } from "./state";

const linked = readLink();
const NOWHERE: Place[] = [];
const NOBODY: Record<string, number> = {};
const KEYS: [string[], string][] = [
  [["q"], "write a query in SQL"],
  [["Back", "Forward"], "undo and redo a jump: search, selection, finding, step, frame"],
];

export function App({ data }: { data: SceneData }) {
  const { profiles } = data;
  const scene = useMemo(() => new Scene(profiles), [data]);
  const source = useMemo(() => new Server(scene), [scene]);
  const query = useRef<HTMLTextAreaElement>(null);
  const history = useRef<Remembered | null>(null);
  const [finding, setFinding] = useState(linked.finding ?? "");
  const [sql, setSql] = useState(linked.sql ?? "");
  const conclusions = useConclusions(profiles.length);
  const connection = useConnection();
  const findings = conclusions[0]?.findings?.rows ?? [];
  const shown = findings.find((each) => findingKey(findings, each) === finding);
  const state = useTimeline({
    scene, source, linked, late: conclusions[0]?.late ?? NOBODY, places: shown?.where ?? NOWHERE,
    remember: () => history.current?.remember(), jump: () => history.current?.jump(), silent: (reason) => reason instanceof Lost,
  });
  const now = (): Linked => ({ ...state.now(), finding, sql });
  const { remember, jump } = history.current = useHistory(now, (to) => {
    setFinding(to.finding ?? "");
    setSql(to.sql ?? "");
    state.apply(to);
  });
  useEffect(remember, [finding, sql]);
  useEffect(() => {
    if (connection.state === "there") state.redraw(); // what was asked for meanwhile is asked for again
  }, [connection.state]);
  const up = () => scrollTo({ top: 0, behavior: "smooth" });
  const show = (chosen: Finding) => {
    jump();
    setFinding(findingKey(findings, chosen));
    state.goTo(0, chosen.where);
    up();
  };
  const goToStep = ({ label }: StepRow) => {
    const at = profiles[0]!.steps.find((each) => each.label === label);
    if (at) state.visit(at.start, at.end, 0.1);
    up();
  };
  const showRow = (...place: [profile: number, rank: number, start: number, end: number]) => {
    state.showSpan(...place);
    up();
  };
  const writeQuery = () => {
    (document.getElementById("sql") as HTMLDetailsElement).open = true;
    query.current!.focus();
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
        <section id="timeline" class={paneled(state) ? "paneled" : ""}>
          <Timeline state={state} most="fill" all="whole capture" keys={{ q: writeQuery }} keysHelp={KEYS}
            focus={shown ? { title: shown.title, actions: <button type="button" onClick={() => { jump(); setFinding(""); }} aria-label="Forget the finding">×</button> } : null}
            label="Timeline of the whole capture. Keys: w and s zoom, a and d move, f frames, m measures, 0 shows all, ? lists all."
            between={<LostPanel connection={connection} command={data.command} />} />
          <SqlSection query={sql} setQuery={(text) => { jump(); setSql(text); }} profiles={profiles.length} show={showRow} input={query} />
        </section>
        <Below data={data} concluded={conclusions[0] ?? null} pending={pending} show={show} goToStep={goToStep} />
      </main>
    </>
  );
}
