// The page: the conclusion first, then where the step went, the timeline, and what the rest says.

import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { CollectivesSection, StragglersSection } from "./across";
import { BreakdownSection, StepBar } from "./breakdown";
import { ComputeSection } from "./compute";
import { readBlock, readReport } from "./data";
import { type Focus, TimelineSection } from "./drawn";
import { FindingList, Statement } from "./findings";
import { MemorySection } from "./memory";
import { OverlapSection } from "./overlap";
import { PeakSection } from "./peak";
import { PipelineSection } from "./pipeline";
import { Ranks } from "./ranks";
import { RooflineSection } from "./roofline";
import { StepsSection } from "./steps";
import { Command, NoteItems, Prose } from "./section";
import { ThemeButton } from "./theme";
import type { Chunk, Finding, Place, Report } from "./messages";
import "./timeline/timeline.css";
import "./report.css";

function App({ report }: { report: Report }) {
  const [block, setBlock] = useState<ArrayBuffer | null>(null);
  const [focus, setFocus] = useState<Focus | null>(null);
  const ranks = useMemo(() => new Map(report.ranks.map((rank) => [rank.rank, rank])), [report]);
  const { timeline, findings, parts } = report;
  useEffect(() => {
    if (timeline) void readBlock().then(setBlock);
  }, [report]);
  const look = (title: string, places: Place[]) => {
    setFocus({ title, places, at: Date.now() });
    document.getElementById("timeline")?.scrollIntoView({ behavior: "smooth", block: "start" });
  };
  const show = (finding: Finding) => look(finding.title, finding.where);
  const showChunk = (chunk: Chunk) => {
    look(chunk.label, [{ rank: chunk.rank, stream: null, start: chunk.start_ns, end: chunk.end_ns }]);
  };
  const back = () => document.getElementById("findings")?.scrollIntoView({ behavior: "smooth" });
  const sections = [
    findings && ["findings", "Findings"],
    ["breakdown", "Breakdown"],
    parts.steps && ["steps", "Steps"],
    timeline && ["timeline", "Timeline"],
    parts.compute && ["compute", "Compute"],
    parts.overlap && ["overlap", "Overlap"],
    parts.peak && ["peak", "Peak"],
    parts.memory && ["memory", "Memory"],
    parts.roofline && ["roofline", "Roofline"],
    parts.collectives && ["collectives", "Collectives"],
    parts.stragglers && ["stragglers", "Stragglers"],
    parts.pipeline && ["pipeline", "Pipeline"],
    ["notes", "Notes"],
  ].filter((entry): entry is [string, string] => Boolean(entry));
  return (
    <Ranks.Provider value={ranks}>
      <nav>
        <b>stepscope</b>
        {sections.map(([id, title]) => <a href={`#${id}`}>{title}</a>)}
        <span class="spring" />
        <ThemeButton />
      </nav>
      <main>
        <div class="hero">
          <p class="source">{report.source}</p>
          <Statement findings={findings} />
          <StepBar part={parts.breakdown} />
        </div>
        {findings && <FindingList findings={findings} show={timeline ? show : null} />}
        <BreakdownSection part={parts.breakdown} />
        {parts.steps && <StepsSection part={parts.steps} />}
        {timeline && (block
          ? <TimelineSection part={timeline} block={block} focus={focus} back={findings?.rows.length ? back : null} stragglers={parts.stragglers} />
          : <section id="timeline"><h2>{timeline.title}</h2><p class="dim">reading…</p></section>)}
        {parts.compute && <ComputeSection part={parts.compute} />}
        {parts.overlap && <OverlapSection part={parts.overlap} />}
        {parts.peak && <PeakSection part={parts.peak} />}
        {parts.memory && <MemorySection part={parts.memory} />}
        {parts.roofline && <RooflineSection part={parts.roofline} />}
        {parts.collectives && <CollectivesSection part={parts.collectives} />}
        {parts.stragglers && <StragglersSection part={parts.stragglers} />}
        {parts.pipeline && <PipelineSection part={parts.pipeline} show={timeline ? showChunk : null} />}
        <Notes report={report} />
      </main>
    </Ranks.Provider>
  );
}

function Notes({ report }: { report: Report }) {
  return (
    <section id="notes">
      <header><h2>What it rests on</h2></header>
      <ul>
        <NoteItems notes={report.notes} />
        {report.missing.map(({ title, why }) => <li><b>{title}</b> is not in this report: <Prose text={why} /></li>)}
      </ul>
      <Command text={report.command} />
      <p class="dim">stepscope {report.version}</p>
    </section>
  );
}

const page = document.getElementById("page")!;
page.textContent = "";
render(<App report={readReport()} />, page);
