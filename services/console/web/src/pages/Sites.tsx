import { Button, Text } from "@mantine/core";
import { useState } from "react";
import { useParticipants } from "../api/queries";
import type { ParticipantView } from "../api/types";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { Facts, Section } from "../parts/Page";
import { number } from "../parts/numbers";
import { Problem } from "../parts/Problem";
import { State, stateOf } from "../parts/State";
import { Table } from "../parts/Table";
import { Ago, Moment } from "../parts/Time";

/** The project's sites: how each stands, and what it lets the owner know of itself. */
export function Sites({ project, terms }: { project: string; terms: boolean }) {
  const sites = useParticipants(project);
  const [open, setOpen] = useState<string | null>(null);
  if (sites.error) return <Problem error={sites.error} retry={() => void sites.refetch()} />;
  if (!sites.data) return <Loading what="sites" />;
  const opened = sites.data.find((site) => site.participant === open);
  return (
    <Section title="Sites" aside={<Text c="dimmed">{sites.data.length} enrolled</Text>}>
      {sites.data.length === 0 ? (
        <Empty title="No site has joined yet">
          Invite a site below and give its administrator the line that you get. The site appears here as soon as it was started
          there; it opens no port and keeps its data.
        </Empty>
      ) : (
        <SiteTable sites={sites.data} terms={terms} open={open} setOpen={setOpen} />
      )}
      {opened && <Opened site={opened} close={() => setOpen(null)} />}
    </Section>
  );
}

const WHY: Record<string, string> = {
  unfit: "its data are not as the project declares them", paused: "its administrator lets no task begin",
  "not agreed": "it does nothing in new runs until its administrator agrees to the project's terms",
};

interface TableGiven {
  sites: ParticipantView[];
  /** Whether the project has terms. */
  terms: boolean;
  open: string | null;
  setOpen(site: string | null): void;
}

function SiteTable({ sites, terms, open, setOpen }: TableGiven) {
  const heads = ["Site", "State", ...(terms ? ["Terms"] : []), "Last seen", "Works on", "Privacy spent", "Device", "Release"];
  return (
    <Table label="Sites" heads={[...heads, ["Clock", "number"]]}>
      {sites.map((site) => (
        <tr key={site.participant} aria-selected={open === site.participant || undefined}>
          <td>
            <button
              type="button" className="plain-button" aria-pressed={open === site.participant}
              onClick={() => setOpen(open === site.participant ? null : site.participant)}
            >
              {site.participant}
            </button>
          </td>
          <td>
            <State is={stateOf(site)} why={WHY[stateOf(site)]} />
          </td>
          {terms && (
            <td>
              <State is={agreedOf(site)} why={WHY[agreedOf(site)]} />
            </td>
          )}
          <td>
            <Ago at={site.last_seen} />
          </td>
          <td>{site.working_on ? <code className="cut">{site.working_on}</code> : "–"}</td>
          <td>{spentOf(site)}</td>
          <td>{site.device || "–"}</td>
          <td>{site.version || "–"}</td>
          <td className="number">{clockOf(site)}</td>
        </tr>
      ))}
    </Table>
  );
}

/** What a site says of itself, as far as its policy opens that. */
function Opened({ site, close }: { site: ParticipantView; close(): void }) {
  return (
    <div className="card" role="status">
      <div className="section-head">
        <Text fw={600}>{site.participant}</Text>
        <Button size="compact-xs" variant="default" onClick={close}>
          Close
        </Button>
      </div>
      <Facts
        of={[
          ["State", `${stateOf(site)}${WHY[stateOf(site)] ? `: ${WHY[stateOf(site)]}` : ""}`],
          ["Joined", <Moment key="joined" at={site.enrolled_at} />],
          ["Terms", site.consent ? <Agreed key="terms" consent={site.consent} /> : "it has agreed to none"],
          ["Privacy spent", spentOf(site)],
          ["Trains on", site.device || "it does not say"],
          ["Connects in", site.region],
          ["Its key", <code key="key" className="cut">{site.public_key}</code>],
        ]}
      />
      {site.rules ? (
        <>
          <Text fw={600} size="sm">Its policy</Text>
          <ul className="rules">
            {site.rules.map((rule) => (
              <li key={rule}>{rule}</li>
            ))}
          </ul>
        </>
      ) : (
        <Text size="sm" c="dimmed">
          It tells nothing of its policy. Its administrator opens that by <code>{"tell: {rules: true}"}</code>, and the budget by <code>budget: true</code>.
        </Text>
      )}
    </div>
  );
}

function Agreed({ consent }: { consent: NonNullable<ParticipantView["consent"]> }) {
  return (
    <>
      {consent.by} agreed to {consent.current ? "those of now" : "earlier ones"}, <Moment at={consent.at} />
    </>
  );
}

const agreedOf = ({ consent }: ParticipantView): string => (consent?.current ? "agreed" : "not agreed");

/** Epsilon of the project, as far as a site tells it. */
export function spentOf(site: Pick<ParticipantView, "budget"> | undefined): string {
  if (!site?.budget) return "–";
  const { budget } = site;
  return `ε ${number(budget.spent)}${budget.allowed === null ? "" : ` of ${number(budget.allowed)}`} (δ ${number(budget.delta)})`;
}

const clockOf = ({ clock_difference: ahead }: ParticipantView): string =>
  ahead === null ? "–" : `${(Math.round(ahead * 10) / 10 || 0).toFixed(1)} s`;
