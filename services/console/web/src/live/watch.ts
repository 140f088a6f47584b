// Runs that are watched: one connection each, whoever looks at them. It is opened while somebody is about to open a run's page; and what was
// known of the runs that were watched last is kept: who comes back sees it at once, and is told what has happened since. Bounded.

import { path } from "../api/client";
import type { RunEvent } from "../api/types";
import { after, NOTHING, type Live, type Told } from "./run";

const KINDS = ["state", "round-started", "task-answered", "progress", "round-finished", "note", "late-result", "refused"];
const TOGETHER_MS = 200;
/** The past comes at once, in one piece or a few: so long after the connection's first word each is shown as the browser has it. */
const PAST_MS = 1_000;
const FIRST_AGAIN_MS = 1_000;
const LAST_AGAIN_MS = 30_000;
/** Runs without a reader that are remembered. */
const REMEMBERED = 4;
/** How long a connection that was opened ahead waits for a reader. */
const AHEAD_MS = 5_000;

export type Line = "connecting" | "live" | "broken" | "ended";

export interface Watched {
  live: Live;
  line: Line;
}

/** Hears after what the record of the run may be another one: the state that was told, or null where the connection broke. */
type Turn = (state: string | null) => void;

class Watch {
  private shown: Watched = { live: NOTHING, line: "connecting" };
  private readonly readers = new Map<() => void, Turn>();
  private source: EventSource | null = null;
  private heard: Told[] = [];
  private wait = FIRST_AGAIN_MS;
  private opened = 0;
  private flush: ReturnType<typeof setTimeout> | undefined;
  private again: ReturnType<typeof setTimeout> | undefined;
  private unread: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly project: string,
    private readonly run: string,
  ) {}

  now = (): Watched => this.shown;

  get read(): boolean {
    return this.readers.size > 0;
  }

  /** Tell a reader of each change, until the returned function is called. */
  reading(changed: () => void, turn: Turn): () => void {
    clearTimeout(this.unread);
    this.readers.set(changed, turn);
    this.open();
    return () => {
      this.readers.delete(changed);
      if (!this.read) this.close();
    };
  }

  /** Somebody may be about to read. */
  ahead(): void {
    if (this.read) return;
    clearTimeout(this.unread);
    this.unread = setTimeout(() => this.close(), AHEAD_MS);
    this.open();
  }

  close(): void {
    clearTimeout(this.unread);
    clearTimeout(this.again);
    clearTimeout(this.flush);
    this.flush = undefined;
    this.source?.close();
    this.source = null;
    this.heard = [];
    if (this.shown.line !== "ended") this.shown = { ...this.shown, line: "connecting" };
  }

  private open(): void {
    if (this.source || this.shown.line === "ended") return;
    const { last } = this.shown.live;
    const query = `?thinned=true&brief=true${last ? `&after=${last}` : ""}`;
    // A browser reconnects by itself where the network broke; where the hub answered with an error it gives up, and we wait.
    const source = new EventSource(path`/v1/projects/${this.project}/runs/${this.run}/events` + query);
    this.source = source;
    source.onopen = () => {
      this.wait = FIRST_AGAIN_MS;
      this.opened = Date.now();
      this.show({ line: "live" });
    };
    source.onerror = () => {
      this.show({ line: "broken" });
      // Whether the session is still good, the run's own query finds out.
      this.turn(null);
      if (source.readyState !== EventSource.CLOSED) return;
      this.source = null;
      this.again = setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(this.wait * 2, LAST_AGAIN_MS);
    };
    for (const kind of KINDS) source.addEventListener(kind, this.hear);
  }

  private readonly hear = (message: MessageEvent<string>): void => {
    this.heard.push({ ...(JSON.parse(message.data) as RunEvent), id: Number(message.lastEventId) });
    this.flush ??= setTimeout(this.take, Date.now() < this.opened + PAST_MS ? 0 : TOGETHER_MS);
  };

  private readonly take = (): void => {
    this.flush = undefined;
    const events = this.heard;
    this.heard = [];
    const live = after(this.shown.live, events);
    const over = live.state !== null && ["completed", "failed", "cancelled"].includes(live.state);
    this.show({ live, ...(over && { line: "ended" }) });
    if (over) this.close();
    if (events.some(({ kind }) => kind === "state")) this.turn(live.state);
  };

  private show(change: Partial<Watched>): void {
    this.shown = { ...this.shown, ...change };
    for (const changed of this.readers.keys()) changed();
  }

  private turn(state: string | null): void {
    for (const turn of this.readers.values()) turn(state);
  }
}

/** By project and run, those that were wanted last at the end. */
const held = new Map<string, Watch>();

export function watchOf(project: string, run: string): Watch {
  const key = JSON.stringify([project, run]);
  const watch = held.get(key) ?? new Watch(project, run);
  held.delete(key);
  held.set(key, watch);
  const unread = [...held].filter(([, one]) => one !== watch && !one.read);
  for (const [other, one] of unread.slice(0, Math.max(0, unread.length - REMEMBERED))) {
    one.close();
    held.delete(other);
  }
  return watch;
}

/** Somebody points at a run: its connection is opened; one that was opened so before, and that nobody reads, is closed. */
export function watchAhead(project: string, run: string): void {
  const wanted = watchOf(project, run);
  for (const one of held.values()) if (one !== wanted && !one.read) one.close();
  wanted.ahead();
}

/** Nothing is known any more: the next person at this browser sees nothing of the last one's. */
export function forgetWatches(): void {
  for (const one of held.values()) one.close();
  held.clear();
}
