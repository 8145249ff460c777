// What a page says whose server has stopped: that it has, how to start it again, and when it is asked again.

import { useEffect, useState } from "preact/hooks";
import { Command } from "../section";
import { type Connection, listen, retry } from "./connection";

export function useConnection(): Connection {
  const [now, setNow] = useState<Connection>({ state: "there", again: 0 });
  useEffect(() => listen(setNow), []);
  return now;
}

export function LostPanel({ connection: { state, again }, command }: { connection: Connection; command: string }) {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const count = () => setSeconds(Math.max(0, Math.ceil((again - Date.now()) / 1000)));
    count();
    const timer = setInterval(count, 250);
    return () => clearInterval(timer);
  }, [again]);
  if (state === "there") return null;
  const start = `${command}${location.port ? ` --port ${location.port}` : ""}`;
  return (
    <div class="details lost" role="alert">
      {state === "gone"
        ? <b>The server has stopped, or cannot be reached. What is drawn stays; nothing more can be asked.</b>
        : <b>Another server answers at this address, and does not know this page.</b>}
      <p>
        {state === "gone" ? "Start it again, and open the address that it prints" : "Open the address that it printed"}
        {"; add "}<code>{location.hash.slice(0, 60)}{location.hash.length > 60 && "…"}</code>{" of this one for the same view:"}
      </p>
      <Command text={start} />
      {state === "gone" && <p class="dim">
        Asking again in {seconds} s <button type="button" onClick={retry}>ask now</button>
      </p>}
    </div>
  );
}
