// A run as it is told: what its events have said so far. Bounded, however long the run is.

import type { RunEvent } from "../api/types";

const MOST_SITES = 200;
const MOST_LINES = 200;

export interface SiteNow {
  doing: "working" | "answered" | "failed" | "left out" | "late";
  round: number;
  /** Share of its task that is done, where it says so. */
  fraction: number | null;
  seconds: number | null;
  /** One of the fixed codes, or what the site said. */
  reason: string;
}

export interface Line {
  id: number;
  at: string;
  text: string;
  bad: boolean;
}

export interface Live {
  last: number;
  state: string | null;
  reason: string;
  round: number;
  roundSince: string | null;
  /** The newest round that has finished: curves are asked for anew after it. */
  finished: number;
  bytes: number;
  progress: { what: string; done: number; of: number } | null;
  sites: Record<string, SiteNow>;
  lines: Line[];
}

export const NOTHING: Live = {
  last: 0, state: null, reason: "", round: 0, roundSince: null, finished: 0, bytes: 0, progress: null, sites: {},
  lines: [],
};

export type Told = RunEvent & { id: number };

/** What is known after further events. Pure; events that were told before change nothing. */
export function after(live: Live, events: readonly Told[]): Live {
  const fresh = events.filter(({ id }) => id > live.last);
  if (fresh.length === 0) return live;
  const now: Live = { ...live, sites: { ...live.sites }, lines: [...live.lines] };
  for (const event of fresh) take(now, event);
  if (now.lines.length > MOST_LINES) now.lines = now.lines.slice(-MOST_LINES);
  now.last = fresh[fresh.length - 1]!.id;
  return now;
}

function take(live: Live, event: Told): void {
  const { data } = event;
  live.round = Math.max(live.round, event.round);
  switch (event.kind) {
    case "state":
      live.state = text(data.state);
      live.reason = text(data.reason);
      note(live, event, `The run is ${live.state}${live.reason ? `: ${live.reason}` : ""}.`, live.state === "failed");
      break;
    case "round-started":
      live.roundSince = event.at;
      for (const name of list(data.participants)) site(live, name, { doing: "working", round: event.round });
      break;
    case "task-answered":
      answered(live, event);
      break;
    case "progress":
      if (typeof data.done === "number") {
        live.progress = { what: text(data.what) || "steps", done: data.done, of: Number(data.of) || 0 };
      } else if (data.participant) {
        site(live, text(data.participant), { doing: "working", round: event.round, fraction: Number(data.fraction) || 0 });
      }
      break;
    case "round-finished":
      finished(live, event);
      break;
    case "refused":
      site(live, text(data.participant), { doing: "left out", round: event.round, reason: text(data.reason) });
      note(live, event, `Round ${event.round}: ${text(data.participant)} was left out: ${text(data.reason)}`, true);
      break;
    case "late-result":
      site(live, text(data.participant), { doing: "late", round: event.round });
      note(live, event, `Round ${event.round}: a late answer of ${text(data.participant)} was refused.`, true);
      break;
    case "note":
      noted(live, event);
      break;
    default:
      break;
  }
}

function answered(live: Live, event: Told): void {
  const { data } = event;
  const who = text(data.participant);
  const outcome = text(data.outcome) || "done";
  const reason = text(data.reason) || text(data.code);
  const seconds = typeof data.seconds === "number" ? data.seconds : null;
  if (outcome === "done") {
    site(live, who, { doing: "answered", round: event.round, seconds, reason });
  } else {
    site(live, who, { doing: "failed", round: event.round, reason: reason || outcome });
    note(live, event, `Round ${event.round}: ${who}: ${outcome}${reason ? `: ${reason}` : ""}`, true);
  }
}

function noted(live: Live, event: Told): void {
  const { data } = event;
  for (const name of list(data.silent)) {
    site(live, name, { doing: "failed", round: event.round, reason: "silent: no answer before the deadline" });
  }
  const failed = (data.failed ?? {}) as Record<string, unknown>;
  for (const [name, reason] of Object.entries(failed)) {
    site(live, name, { doing: "failed", round: event.round, reason: text(reason) });
  }
  const said = [
    ...list(data.silent).map((name) => `${name} is silent`),
    ...Object.entries(failed).map(([name, reason]) => `${name} failed (${text(reason)})`),
    text(data.warning), text(data.reason),
  ].filter(Boolean);
  if (said.length) note(live, event, `Round ${event.round}: ${said.join(", ")}`, true);
}

function finished(live: Live, event: Told): void {
  const { data } = event;
  const sent = (data.bytes ?? {}) as Record<string, number>;
  // Of a past that was told in few events, the newest round says what all before it have sent.
  const all = data.sent as Record<string, number> | undefined;
  live.bytes = all ? (all.down ?? 0) + (all.up ?? 0) : live.bytes + (sent.down ?? 0) + (sent.up ?? 0);
  live.finished = Math.max(live.finished, event.round);
}

function site(live: Live, name: string, now: Partial<SiteNow> & Pick<SiteNow, "doing" | "round">): void {
  if (!(name in live.sites) && Object.keys(live.sites).length >= MOST_SITES) return;
  live.sites[name] = { fraction: null, seconds: null, reason: "", ...now };
}

function note(live: Live, event: Told, said: string, bad: boolean): void {
  live.lines.push({ id: event.id, at: event.at, text: said, bad });
}

const text = (value: unknown): string => (typeof value === "string" ? value : value == null ? "" : String(value));
const list = (value: unknown): string[] => (Array.isArray(value) ? value.map(text) : []);
