import type { ParticipantView } from "../api/types";

const KINDS: Record<string, string> = {
  running: "good", online: "good", production: "good", open: "good", active: "good", invited: "warn", completed: "done", used: "done", staging: "warn",
  waiting: "warn", paused: "warn", "being cancelled": "warn", "being paused": "warn", unfit: "bad", failed: "bad", urgent: "bad", "to look at": "warn", void: "quiet", ready: "good", "not ready": "bad", agreed: "good", "not agreed": "warn", silent: "warn",
  cancelled: "quiet", offline: "bad", revoked: "quiet", expired: "quiet", candidate: "quiet", archived: "quiet",
};

/** A state as a word with a colour: the word alone tells it, too. */
export function State({ is, why }: { is: string; why?: string }) {
  return (
    <span className={`state state-${KINDS[is] ?? "quiet"}`} title={why}>
      {is}
    </span>
  );
}

export function stateOf(site: ParticipantView): string {
  if (site.revoked) return "revoked";
  if (!site.online) return "offline";
  if (site.unfit) return "unfit";
  return site.paused ? "paused" : "online";
}

export function stateOfRun(run: { state: string; wanted: string }): string {
  const over = ["completed", "failed", "cancelled"].includes(run.state);
  if (!over && run.wanted === "cancel") return "being cancelled";
  if (run.state === "running" && run.wanted === "pause") return "being paused";
  return run.state;
}
