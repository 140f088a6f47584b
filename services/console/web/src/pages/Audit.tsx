import { Button, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { useAudit } from "../api/queries";
import type { AuditEntry } from "../api/types";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { Page } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { save } from "../parts/save";
import { Moment } from "../parts/Time";

const PAGE = 200;

/** Who decided what, when, on whose authority: a page at a time, oldest first. */
export function Audit({ project }: { project: string }) {
  const [starts, setStarts] = useState([0]);
  const [wanted, setWanted] = useState("");
  const audit = useAudit(project, starts.at(-1)!);
  const word = wanted.trim().toLowerCase();
  const shown = (audit.data ?? []).filter((entry) => !word || textOf(entry).includes(word));
  const newest = audit.data?.at(-1)?.sequence;
  return (
    <Page
      title="Audit"
      above={[["Overview", "/"], [project, `/projects/${project}`]]}
      actions={
        <Button
          variant="default" disabled={shown.length === 0}
          onClick={() => save(`${project}-audit.json`, JSON.stringify(shown, null, 2), "application/json")}
        >
          Save what is shown
        </Button>
      }
    >
      <TextInput label="Show only what has" placeholder="run.submit, a person, a site …" value={wanted} onChange={(e) => setWanted(e.target.value)} />
      <Problem error={audit.error} retry={() => void audit.refetch()} />
      {audit.isLoading && <Loading what="the audit" />}
      {audit.data && shown.length === 0 && (
        <Empty title={word ? "Nothing on this page has that" : "Nothing was decided yet"}>
          Invitations, runs, promotions and downloads are written down here for good, with who did them.
        </Empty>
      )}
      {shown.length > 0 && (
        <div className="table-around" tabIndex={0} role="region" aria-label="Decisions">
          <table className="table">
            <thead>
              <tr>
                <th>When</th>
                <th>Who</th>
                <th>What</th>
                <th>Of what</th>
                <th>By what right</th>
                <th>More</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((entry) => (
                <tr key={entry.sequence}>
                  <td>
                    <Moment at={entry.at} />
                  </td>
                  <td>{entry.actor}</td>
                  <td>{entry.action}</td>
                  <td>{entry.subject}</td>
                  <td>{entry.authority}</td>
                  <td>{moreOf(entry)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <div className="row">
        <Button variant="default" size="xs" disabled={starts.length === 1} onClick={() => setStarts(starts.slice(0, -1))}>
          Older
        </Button>
        <Button
          variant="default" size="xs" disabled={!newest || (audit.data?.length ?? 0) < PAGE} onClick={() => newest && setStarts([...starts, newest])}
        >
          Newer
        </Button>
        <Text size="sm" c="dimmed">
          Page {starts.length}, {PAGE} entries a page
        </Text>
      </div>
    </Page>
  );
}

const moreOf = (entry: AuditEntry) =>
  Object.entries(entry.detail).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");

const textOf = (entry: AuditEntry) => `${entry.actor} ${entry.action} ${entry.subject} ${moreOf(entry)}`.toLowerCase();
