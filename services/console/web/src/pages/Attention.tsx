import { Text } from "@mantine/core";
import { Link } from "wouter";
import { ended } from "../api/queries";
import type { ParticipantView, RunSummary, StatusView } from "../api/types";

export interface Concern {
  key: string;
  project?: string;
  text: string;
  to?: string;
  weight: "urgent" | "look";
  since?: string | null;
  advice: string;
}

const RECENT_MS = 24 * 3_600_000;
const CLOCK_S = 60;
const WAITS_MS = 10 * 60_000;

/** What a project's owner should look at. */
export function attentionOf(project: string, runs: RunSummary[], sites: ParticipantView[]): Concern[] {
  const place = `/projects/${project}`;
  const failed = runs
    .filter((run) => run.state === "failed" && Date.now() - Date.parse(run.updated_at) < RECENT_MS)
    .slice(0, 3)
    .map((run): Concern => ({
      key: `${project} ${run.run}`, project, to: `${place}/runs/${run.run}`, weight: "urgent", since: run.updated_at,
      text: `The run ${run.name || run.run} failed: ${run.reason || "its page says why"}.`,
      advice: "Its page says who dropped out and why. Mend the cause, then run the job again.",
    }));
  const waits = runs
    .filter((run) => run.state === "waiting" && !ended(run))
    .map((run): Concern => ({
      key: `${project} ${run.run} waits`, project, to: `${place}/runs/${run.run}`, since: run.created_at,
      weight: Date.now() - Date.parse(run.created_at) > WAITS_MS ? "urgent" : "look",
      text: `The run ${run.name || run.run} waits for sites.`,
      advice: "It begins by itself when as many sites are online as its job asks for.",
    }));
  const about = (found: ParticipantView[], key: string, what: string, weight: Concern["weight"], advice: string): Concern[] =>
    found.length === 0
      ? []
      : [{
          key: `${project} ${key}`, project, to: `${place}/sites`, weight, advice,
          text: `${found.slice(0, 3).map((site) => site.participant).join(", ")}${found.length > 3 ? ` and ${found.length - 3} more` : ""} ${what}.`,
          since: found.map((site) => site.last_seen).sort()[0] ?? null,
        }];
  const away = sites.filter((site) => !site.online);
  const wrong = sites.filter((site) => site.online && Math.abs(site.clock_difference ?? 0) > CLOCK_S);
  return [
    ...failed, ...waits,
    ...about(sites.filter((site) => site.online && site.unfit), "unfit", "refused their data", "urgent",
      "The data are not as the project declares them: the site's log says in which file and column. Its administrator mends that."),
    ...about(sites.filter((site) => site.consent && !site.consent.current && !site.revoked), "terms", "did not agree to the project's terms of now", "urgent",
      "They do nothing in new runs. Their administrators see what has changed, in the site's window or by: hanse site agree."),
    ...about(away, "away", `${away.length === 1 ? "is" : "are"} offline`, "look",
      "Ask the site's administrator whether its datapod runs, and whether it reaches the hub. It comes back by itself."),
    ...about(wrong, "clock", `${wrong.length === 1 ? "has a clock" : "have clocks"} more than a minute off`, "look",
      "Have the site's machine set its clock by the network (NTP)."),
  ];
}

/** What the hub's operator should look at. */
export function ofHub(status: StatusView | undefined): Concern[] {
  if (!status || (status.bus_ready && status.store_ready)) return [];
  const what = status.bus_ready ? "object store" : "bus";
  return [{ key: "hub", weight: "urgent", text: `The hub's ${what} does not answer.`, advice: `Look into the logs of the ${what} and of the coordinator.` }];
}

export function Attention({ concerns }: { concerns: Concern[] }) {
  if (concerns.length === 0) return <Text c="dimmed">Nothing: all sites are there, and no run has failed since yesterday.</Text>;
  return (
    <ul className="concerns">
      {concerns.slice(0, 8).map(({ key, project, text, to }) => (
        <li key={key}>
          {to ? (
            <Link href={to} className="link">
              {project ? `${project}: ` : ""}{text}
            </Link>
          ) : (
            text
          )}
        </li>
      ))}
      {concerns.length > 8 && (
        <li>
          <Link href="/alerts" className="link">
            and {concerns.length - 8} more
          </Link>
        </li>
      )}
    </ul>
  );
}
