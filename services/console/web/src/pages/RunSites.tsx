import { Button, Progress, Text } from "@mantine/core";
import type { SiteNow } from "../live/run";
import { Facts, Section } from "../parts/Page";

const KIND = { working: "warn", answered: "good", failed: "bad", "left out": "bad", late: "bad" } as const;

interface Given {
  sites: Record<string, SiteNow>;
  over: boolean;
  /** The site whose curve is drawn beside the whole. */
  open: string | null;
  setOpen(site: string | null): void;
}

/** Where each site stands in the round. */
export function RunSites({ sites, over, open, setOpen }: Given) {
  const rows = Object.entries(sites).sort(([a], [b]) => a.localeCompare(b));
  const out = rows.filter(([, site]) => KIND[site.doing] === "bad").length;
  return (
    <Section title="Sites" aside={out > 0 && <Text c="dimmed">{out} dropped out</Text>}>
      {rows.length === 0 ? (
        <Text c="dimmed">{over ? "No site was given a task." : "Sites appear with the first round."}</Text>
      ) : (
        <>
        {open !== null && sites[open] && <Opened name={open} site={sites[open]} over={over} close={() => setOpen(null)} />}
        <div className="table-around tall" tabIndex={0} role="region" aria-label="Sites of the run">
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
                <tr key={name} aria-selected={open === name || undefined}>
                  <td>
                    <button type="button" className="plain-button" aria-pressed={open === name} onClick={() => setOpen(open === name ? null : name)}>
                      {name}
                    </button>
                  </td>
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
        </>
      )}
    </Section>
  );
}

function Opened({ name, site, over, close }: { name: string; site: SiteNow; over: boolean; close(): void }) {
  return (
    <div className="card" role="status">
      <div className="section-head">
        <Text fw={600}>{name}</Text>
        <Button size="compact-xs" variant="default" onClick={close}>
          Close
        </Button>
      </div>
      <Facts
        of={[
          ["State", over && site.doing === "working" ? "ended" : site.doing],
          ["Round", String(site.round)],
          ["Its last task took", site.seconds === null ? "–" : `${site.seconds.toFixed(2)} s`],
          ["It said", site.reason || "–"],
        ]}
      />
      <Text size="sm" c="dimmed">
        Where the sites&apos; policies let the hub see single sites, its own curve is drawn above, beside the one over all.
      </Text>
    </div>
  );
}
