import { SegmentedControl, Text } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { participantsOf, runsOf, useProjects, useStatus } from "../api/queries";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { Page } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { State } from "../parts/State";
import { Table } from "../parts/Table";
import { Ago } from "../parts/Time";
import { useSession } from "../session/Session";
import { attentionOf, ofHub, type Concern } from "./Attention";

/** Everything that somebody should look at, over all projects: what is wrong, since when, and what to do about it. */
export function Alerts() {
  const { concerns, asking, problem } = useConcerns();
  const [which, setWhich] = useState("all");
  const shown = concerns.filter(({ weight }) => which === "all" || weight === which);
  return (
    <Page
      title="Alerts" above={[["Overview", "/"]]}
      actions={
        <SegmentedControl
          aria-label="Which alerts" size="xs" value={which} onChange={setWhich}
          data={[{ value: "all", label: "All" }, { value: "urgent", label: "Urgent" }, { value: "look", label: "To look at" }]}
        />
      }
    >
      <Problem error={problem} />
      {asking && <Loading what="your projects" />}
      {!asking && shown.length === 0 && (
        <Empty title="Nothing to look at">
          All sites are there, and no run has failed since yesterday. A site that falls silent, data that are refused, a run that fails or waits, a clock
          that is wrong: all appear here by themselves, and go when they are over.
        </Empty>
      )}
      {shown.length > 0 && (
        <Table label="Alerts" heads={["How much", "Project", "What", "Since", "What to do"]}>
          {shown.map((one) => (
            <tr key={one.key}>
              <td>
                <State is={one.weight === "urgent" ? "urgent" : "to look at"} />
              </td>
              <td>{one.project ?? "the hub"}</td>
              <td className="said">
                {one.to ? (
                  <Link href={one.to} className="link">
                    {one.text}
                  </Link>
                ) : (
                  one.text
                )}
              </td>
              <td>{one.since ? <Ago at={one.since} /> : "–"}</td>
              <td className="said">{one.advice}</td>
            </tr>
          ))}
        </Table>
      )}
      <Text size="sm" c="dimmed">
        Alerts of the hub&apos;s machines (disk, queues, certificates, backups) come from Prometheus, to whom the operator has them sent.
      </Text>
    </Page>
  );
}

const SHOWN = 30;

/** What there is to look at, of as many projects as are asked for at once. */
export function useConcerns() {
  const { session } = useSession();
  const projects = useProjects();
  const { data: status } = useStatus(session?.role === "operator" && session.projects === null);
  const shown = (projects.data ?? []).slice(0, SHOWN);
  const runs = useQueries({ queries: shown.map(({ name }) => ({ ...runsOf(name), refetchInterval: 10_000 })) });
  const sites = useQueries({ queries: shown.map(({ name }) => ({ ...participantsOf(name), refetchInterval: 10_000 })) });
  const rows = shown.map((project, at) => ({
    project, runs: runs[at]?.data ?? [], sites: (sites[at]?.data ?? []).filter((site) => !site.revoked),
  }));
  const concerns: Concern[] = [...ofHub(status), ...rows.flatMap((row) => attentionOf(row.project.name, row.runs, row.sites))];
  concerns.sort((a, b) => Number(b.weight === "urgent") - Number(a.weight === "urgent"));
  const asking = projects.isLoading || [...runs, ...sites].some((one) => one.isLoading);
  return { projects, rows, concerns, asking, problem: projects.error };
}
