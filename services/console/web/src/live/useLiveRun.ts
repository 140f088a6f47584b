import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { path } from "../api/client";
import type { RunEvent } from "../api/types";
import { after, NOTHING, type Live, type Told } from "./run";

const KINDS = ["state", "round-started", "task-answered", "progress", "round-finished", "note", "late-result", "refused"];
const TOGETHER_MS = 200;
/** The past comes at once: it is shown as soon as the browser has it. */
const FIRST_MS = 10;
const FIRST_AGAIN_MS = 1_000;
const LAST_AGAIN_MS = 30_000;

export type Line = "connecting" | "live" | "broken" | "ended";

/** A run as it happens. Where the connection breaks, it goes on after the last event that was seen. */
export function useLiveRun(project: string, run: string): { live: Live; line: Line } {
  const [live, setLive] = useState(NOTHING);
  const [line, setLine] = useState<Line>("connecting");
  const queries = useQueryClient();

  useEffect(() => {
    let source: EventSource | null = null;
    let over = false;
    let wait = FIRST_AGAIN_MS;
    let again: ReturnType<typeof setTimeout> | undefined;
    let heard: Told[] = [];
    let flush: ReturnType<typeof setTimeout> | undefined;
    let first = true;

    const tell = () => {
      flush = undefined;
      const events = heard;
      heard = [];
      setLive((now) => after(now, events));
    };

    const open = () => {
      // A browser reconnects by itself where the network broke; where the hub answered with an error it gives up, and we wait.
      source = new EventSource(path`/v1/projects/${project}/runs/${run}/events` + "?thinned=true&brief=true");
      source.onopen = () => {
        wait = FIRST_AGAIN_MS;
        setLine("live");
      };
      source.onerror = () => {
        if (over) return;
        setLine("broken");
        // Whether the session is still good, the run's own query finds out.
        void queries.invalidateQueries({ queryKey: ["run", project, run] });
        if (source?.readyState === EventSource.CLOSED) {
          again = setTimeout(open, wait);
          wait = Math.min(wait * 2, LAST_AGAIN_MS);
        }
      };
      for (const kind of KINDS) source.addEventListener(kind, hear);
    };

    const hear = (message: MessageEvent<string>) => {
      const event = JSON.parse(message.data) as RunEvent;
      heard.push({ ...event, id: Number(message.lastEventId) });
      flush ??= setTimeout(tell, first ? FIRST_MS : TOGETHER_MS);
      first = false;
      if (event.kind === "state") {
        void queries.invalidateQueries({ queryKey: ["run", project, run] });
        if (["completed", "failed", "cancelled"].includes(String(event.data.state))) {
          over = true;
          setLine("ended");
          source?.close();
        }
      }
    };

    open();
    return () => {
      over = true;
      clearTimeout(again);
      clearTimeout(flush);
      source?.close();
    };
  }, [project, run, queries]);

  return { live, line };
}
