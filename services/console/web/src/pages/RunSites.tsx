import { Progress, Text } from "@mantine/core";
import type { SiteNow } from "../live/run";
import { Section } from "../parts/Page";

const KIND = { working: "warn", answered: "good", failed: "bad", "left out": "bad", late: "bad" } as const;

/** Where each site stands in the round. */
export function RunSites({ sites, over }: { sites: Record<string, SiteNow>; over: boolean }) {
  const rows = Object.entries(sites).sort(([a], [b]) => a.localeCompare(b));
  const out = rows.filter(([, site]) => KIND[site.doing] === "bad").length;
  return (
    <Section title="Sites" aside={out > 0 && <Text c="dimmed">{out} dropped out</Text>}>
      {rows.length === 0 ? (
        <Text c="dimmed">{over ? "No site was given a task." : "Sites appear with the first round."}</Text>
      ) : (
        <div className="table-around" tabIndex={0} role="region" aria-label="Sites of the run">
          <table className="table">
            <thead>
              <tr>
                <th>Site</th>
                <th>State</th>
                <th className="number">Round</th>
                <th>Progress</th>
                <th className="number">Took</th>
                <th>Said</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(([name, site]) => (
                <tr key={name}>
                  <td>{name}</td>
                  <td>
                    <span className={`state state-${over && site.doing === "working" ? "quiet" : KIND[site.doing]}`}>
                      {over && site.doing === "working" ? "ended" : site.doing}
                    </span>
                  </td>
                  <td className="number">{site.round}</td>
                  <td>
                    {site.doing === "working" && !over && site.fraction !== null ? (
                      <Progress.Root size="md" w={120}>
                        <Progress.Section value={100 * site.fraction} aria-label={`Task of ${name}`} />
                      </Progress.Root>
                    ) : site.doing === "answered" ? (
                      "done"
                    ) : (
                      "–"
                    )}
                  </td>
                  <td className="number">{site.seconds === null ? "–" : `${site.seconds.toFixed(2)} s`}</td>
                  <td className="said">{site.reason || "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}
