import { Button, Progress, Text } from "@mantine/core";
import { memo, useState } from "react";
import type { ParticipantView } from "../api/types";
import type { SiteNow } from "../live/run";
import { Facts, Section } from "../parts/Page";
import { Table } from "../parts/Table";
import { useInParts } from "../parts/useInParts";
import { spentOf } from "./Sites";

const KIND: Record<string, string> = {
  working: "warn", answered: "good", failed: "bad", "left out": "bad", late: "bad", paused: "warn", ended: "quiet",
};

/** Of a window so many pixels are above the table, or more; and so many a row has, or more. */
const ABOVE = 430;
const ROW = 34;
/** As many as a window shows. */
const inView = () => Math.max(1, Math.ceil((window.innerHeight - ABOVE) / ROW));

interface Given {
  sites: Record<string, SiteNow>;
  /** What the sites tell of themselves, by name. */
  told: Record<string, ParticipantView>;
  over: boolean;
  /** The site whose curve is drawn beside the whole. */
  open: string | null;
  /** Opens a site, or closes the one that is open. Always the same function: only rows that have changed are drawn anew. */
  toggle(site: string): void;
  /** Somebody points at a site; always the same function, too. */
  ahead(site: string): void;
}

/** Where each site stands in the round. */
export const RunSites = memo(function RunSites({ sites, told, over, open, toggle, ahead }: Given) {
  const rows = Object.entries(sites).sort(([a], [b]) => a.localeCompare(b));
  const out = rows.filter(([, site]) => KIND[site.doing] === "bad").length;
  const opened = open === null ? undefined : sites[open];
  const [first] = useState(inView);
  const drawn = useInParts(rows.length, first);
  const budgets = rows.some(([name]) => told[name]?.budget);
  return (
    <Section title="Sites" aside={out > 0 && <Text c="dimmed">{out} dropped out</Text>}>
      {rows.length === 0 ? (
        <Text c="dimmed">{over ? "No site was given a task." : "Sites appear with the first round."}</Text>
      ) : (
        <>
          {open !== null && opened && <Opened name={open} site={opened} told={told[open]} over={over} close={() => toggle(open)} />}
          <Table
            tall label="Sites of the run"
            heads={["Site", "State", ["Round", "number"], "Progress", ["Took", "number"], ...(budgets ? ["Privacy spent"] : []), "Said"]}
          >
            {rows.slice(0, drawn).map(([name, site]) => (
              <Row
                key={name} name={name} site={site} stands={standOf(site, told[name], over)} spent={budgets ? spentOf(told[name]) : null}
                over={over} open={open === name} toggle={toggle} ahead={ahead}
              />
            ))}
          </Table>
        </>
      )}
    </Section>
  );
});

interface RowGiven {
  name: string;
  site: SiteNow;
  stands: string;
  /** null: no site of the run tells what it has spent. */
  spent: string | null;
  over: boolean;
  open: boolean;
  toggle(site: string): void;
  ahead(site: string): void;
}

const Row = memo(function Row({ name, site, stands, spent, over, open, toggle, ahead }: RowGiven) {
  return (
    <tr aria-selected={open || undefined}>
      <td>
        <button
          type="button" className="plain-button" aria-pressed={open}
          onClick={() => toggle(name)} onPointerEnter={() => ahead(name)} onFocus={() => ahead(name)}
        >
          {name}
        </button>
      </td>
      <td>
        <span className={`state state-${KIND[stands]}`}>{stands}</span>
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
      <td className="number">{tookOf(site)}</td>
      {spent !== null && <td>{spent}</td>}
      <td className="said">{site.reason || "–"}</td>
    </tr>
  );
});

/** What it does in the run; a site that has paused does nothing more until its administrator lets it. */
function standOf(site: SiteNow, told: ParticipantView | undefined, over: boolean): string {
  if (site.doing !== "working") return site.doing;
  if (over) return "ended";
  return told?.paused ? "paused" : site.doing;
}

const tookOf = ({ seconds }: SiteNow): string => (seconds === null ? "–" : `${seconds.toFixed(2)} s`);

interface OpenedGiven {
  name: string;
  site: SiteNow;
  told: ParticipantView | undefined;
  over: boolean;
  close(): void;
}

function Opened({ name, site, told, over, close }: OpenedGiven) {
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
          ["State", standOf(site, told, over)],
          ["Round", String(site.round)],
          ["Its last task took", tookOf(site)],
          ["Privacy spent in the project", spentOf(told)],
          ["Trains on", told?.device || "–"],
          ["It said", site.reason || "–"],
        ]}
      />
      <Text size="sm" c="dimmed">
        Where the sites&apos; policies let the hub see single sites, its own curve is drawn above, beside the one over all.
      </Text>
    </div>
  );
}
