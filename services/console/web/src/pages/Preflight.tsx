import { Button, Text } from "@mantine/core";
import { askSites, useChange } from "../api/queries";
import type { Checked, Job } from "../api/types";
import { Table } from "../parts/Table";
import { number } from "../parts/numbers";
import { Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { State } from "../parts/State";

/** What the sites that are there say of a job before it runs: of their data, their policies and their budgets. */
export function Preflight({ project, job }: { project: string; job: Job }) {
  const asked = useChange(() => askSites(project)(job));
  const sites = asked.data?.sites ?? [];
  return (
    <Section title="What the sites say">
      <Text size="sm" c="dimmed">
        Before the run, each site that is there can say whether its data, its policy and its privacy budget allow it. Nobody trains, and nobody is charged.
      </Text>
      <div className="row">
        <Button size="xs" variant="default" loading={asked.isPending} onClick={() => asked.mutate(undefined)}>
          Ask the sites
        </Button>
      </div>
      <Problem error={asked.error} />
      {asked.data && sites.length === 0 && <Text>No site is there that could be asked.</Text>}
      {sites.length > 0 && (
        <Table label="What the sites say" heads={["Site", "Ready", "It says"]}>
          {sites.map((site) => (
            <tr key={site.participant}>
              <td>{site.participant}</td>
              <td>
                <State is={readyOf(site)} />
              </td>
              <td className="said">{site.findings.map(wordsOf).join("; ") || site.reason || "nothing"}</td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}

type Site = NonNullable<Checked["sites"]>[number];
type Finding = Site["findings"][number];

const AGAINST = ["unfit", "refused", "short"];
const WORDS: Record<string, string> = {
  fits: "the data are as the project declares them", unfit: "its data do not serve this job; its own log says why", allowed: "its policy allows the job",
  refused: "its policy refuses the job", enough: "its privacy budget suffices", short: "its privacy budget does not suffice",
  untold: "the charge depends on what it does not tell",
};

const readyOf = (site: Site): string =>
  site.findings.length === 0 ? "silent" : site.findings.some(({ code }) => AGAINST.includes(code)) ? "not ready" : "ready";

function wordsOf({ code, rule, text, remains }: Finding): string {
  const said = text || (WORDS[code] ?? code) + (rule ? `: ${rule}` : "");
  return remains === null || remains === undefined ? said : `${said}; ε ${number(remains)} remains`;
}
