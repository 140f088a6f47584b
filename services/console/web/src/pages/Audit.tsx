import { Button, Select, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { AUDIT_PAGE, auditOf } from "../api/queries";
import type { AuditEntry } from "../api/types";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { Page } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { Table } from "../parts/Table";
import { save } from "../parts/save";
import { Moment } from "../parts/Time";
import { asCsv } from "./csv";

const EXPORTED = 10_000;
const KINDS = [
  ["", "everything"], ["run", "runs"], ["model", "models"], ["output", "results of studies"], ["invitation", "invitations"],
  ["participant", "sites"], ["sites", "questions to sites"], ["key", "keys"], ["project", "the project"], ["object", "uploads"],
] as const;
const OF_HUB = [["", "everything"], ["session", "sessions"], ["person", "people"], ["key", "keys"], ["project", "projects"]] as const;

/** Who decided what, when, on whose authority: newest first, a page at a time, searched at the hub. */
export function Audit({ project }: { project: string | null }) {
  const [before, setBefore] = useState<(number | null)[]>([null]);
  const [typed, setTyped] = useState({ contains: "", action: "", since: "", until: "" });
  const [settled] = useDebouncedValue(typed, 300);
  const wanted = useMemo(() => queryOf(settled), [settled]);
  const last = before.at(-1) ?? null;
  const audit = useQuery({ ...auditOf(project, wanted, last), placeholderData: keepPreviousData });
  const entries = audit.data ?? [];
  const oldest = entries.at(-1)?.sequence;
  const more = oldest !== undefined && entries.length === AUDIT_PAGE;
  const queries = useQueryClient();
  // The next page is at hand when somebody turns to it.
  useEffect(() => {
    if (more && !audit.isPlaceholderData) void queries.prefetchQuery(auditOf(project, wanted, oldest));
  }, [more, audit.isPlaceholderData, oldest, project, wanted, queries]);
  const [problem, setProblem] = useState<unknown>(null);
  const change = (to: Partial<typeof typed>) => {
    setTyped({ ...typed, ...to });
    setBefore([null]);
  };
  const whole = async (form: "csv" | "json") => {
    setProblem(null);
    try {
      const all = await queries.fetchQuery(auditOf(project, wanted, null, EXPORTED));
      const name = `${project ?? "hub"}-audit.${form}`;
      if (form === "csv") save(name, asCsv(all), "text/csv");
      else save(name, JSON.stringify(all, null, 2), "application/json");
    } catch (failed) {
      setProblem(failed);
    }
  };
  return (
    <Page
      title="Audit"
      above={project === null ? [["Overview", "/"], ["Settings", "/settings"]] : [["Overview", "/"], [project, `/projects/${project}`]]}
      actions={
        <>
          <Button variant="default" disabled={entries.length === 0} onClick={() => void whole("csv")}>
            Export as CSV
          </Button>
          <Button variant="default" disabled={entries.length === 0} onClick={() => void whole("json")}>
            As JSON
          </Button>
        </>
      }
    >
      <div className="row">
        <TextInput label="Search" placeholder="a person, a site, a run …" value={typed.contains} maxLength={200} onChange={(e) => change({ contains: e.target.value })} />
        <Select
          label="Of what" value={typed.action} onChange={(to) => change({ action: to ?? "" })} allowDeselect={false} comboboxProps={{ transitionProps: { duration: 0 } }}
          data={(project === null ? OF_HUB : KINDS).map(([value, label]) => ({ value, label }))}
        />
        <TextInput label="From" type="date" value={typed.since} onChange={(e) => change({ since: e.target.value })} />
        <TextInput label="To" type="date" value={typed.until} onChange={(e) => change({ until: e.target.value })} />
      </div>
      <Problem error={problem ?? audit.error} retry={() => void audit.refetch()} />
      {audit.isLoading && <Loading what="the audit" />}
      {audit.data && entries.length === 0 && (
        <Empty title={Object.keys(wanted).length > 0 ? "Nothing was found" : "Nothing was decided yet"}>
          Invitations, runs, promotions and downloads are written down here for good, with who did them.
        </Empty>
      )}
      {entries.length > 0 && <Entries entries={entries} />}
      <div className="row">
        <Button variant="default" size="xs" disabled={before.length === 1} onClick={() => setBefore(before.slice(0, -1))}>
          Newer
        </Button>
        <Button variant="default" size="xs" disabled={!more} onClick={() => oldest !== undefined && setBefore([...before, oldest])}>
          Older
        </Button>
        <Text size="sm" c="dimmed">
          Page {before.length}, {AUDIT_PAGE} entries a page. An export has up to {EXPORTED.toLocaleString()}, as they are searched for.
        </Text>
      </div>
    </Page>
  );
}

function Entries({ entries }: { entries: AuditEntry[] }) {
  return (
    <Table label="Decisions" heads={["When", "Who", "What", "Of what", "More"]}>
      {/* By their place: on the next page the rows stay, and what stands in them changes. */}
      {entries.map((entry, at) => (
        <tr key={at}>
          <td>
            <Moment at={entry.at} />
          </td>
          <td className="said">{entry.actor}</td>
          <td>{entry.action}</td>
          <td className="said">{entry.subject}</td>
          <td>
            <div className="more" title={moreOf(entry)}>{moreOf(entry)}</div>
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** Days are the reader's own. */
function queryOf({ contains, action, since, until }: { contains: string; action: string; since: string; until: string }): Record<string, string> {
  const found: Record<string, string> = {};
  if (contains.trim()) found.contains = contains.trim();
  if (action) found.action = action;
  if (since) found.since = new Date(`${since}T00:00:00`).toISOString();
  if (until) found.until = new Date(`${until}T23:59:59.999`).toISOString();
  return found;
}

const moreOf = (entry: AuditEntry) =>
  [`as ${entry.authority}`, ...Object.entries(entry.detail).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)].join(", ");
