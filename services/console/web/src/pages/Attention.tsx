import { Text } from "@mantine/core";
import { Link } from "wouter";
import { ended } from "../api/queries";
import type { ParticipantView, RunSummary } from "../api/types";

export interface Concern {
  key: string;
  text: string;
  to?: string;
}

const RECENT_MS = 24 * 3_600_000;

/** What a project's owner should look at. */
export function attentionOf(project: string, runs: RunSummary[], sites: ParticipantView[]): Concern[] {
  const place = `/projects/${project}`;
  const failed = runs
    .filter((run) => run.state === "failed" && Date.now() - Date.parse(run.updated_at) < RECENT_MS)
    .slice(0, 3)
    .map((run) => ({
      key: `${project} ${run.run}`, to: `${place}/runs/${run.run}`,
      text: `${project}: the run ${run.name || run.run} failed: ${run.reason || "its page says why"}.`,
    }));
  const waits = runs
    .filter((run) => run.state === "waiting" && !ended(run))
    .map((run) => ({
      key: `${project} ${run.run} waits`, to: `${place}/runs/${run.run}`,
      text: `${project}: the run ${run.name || run.run} waits for sites.`,
    }));
  const unfit = sites.filter((site) => site.online && site.unfit);
  const away = sites.filter((site) => !site.online);
  const about = (found: ParticipantView[], what: string) =>
    found.length === 0
      ? []
      : [{
          key: `${project} ${what}`, to: place,
          text: `${project}: ${found.slice(0, 3).map((site) => site.participant).join(", ")}${found.length > 3 ? ` and ${found.length - 3} more` : ""} ${what}.`,
        }];
  return [
    ...failed, ...waits,
    ...about(unfit, "refused their data: they are not as the project declares them, and the site's log says where"),
    ...about(away, `${away.length === 1 ? "is" : "are"} offline`),
  ];
}

export function Attention({ concerns }: { concerns: Concern[] }) {
  if (concerns.length === 0) return <Text c="dimmed">Nothing: all sites are there, and no run has failed since yesterday.</Text>;
  return (
    <ul className="concerns">
      {concerns.map(({ key, text, to }) => (
        <li key={key}>
          {to ? (
            <Link href={to} className="link">
              {text}
            </Link>
          ) : (
            text
          )}
        </li>
      ))}
    </ul>
  );
}
