import { Button, Select, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { ask, path } from "../api/client";
import { useChange, useRun, useStudy, useStudyHits, useStudyPoints, useStudyQuantiles, type Region } from "../api/queries";
import type { HitView, StudyView } from "../api/types";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { count, number } from "../parts/numbers";
import { Facts, Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { Scatter, type Dots } from "../parts/Scatter";
import { Quality } from "./StudyQuality";

const GENOME_WIDE = -Math.log10(5e-8);
const AROUND = 500_000;

export function Study({ project, run: id }: { project: string; run: string }) {
  const run = useRun(project, id);
  const study = useStudy(project, id);
  const [region, setRegion] = useState<Region>({});
  const download = useChange(async () => {
    const { url } = await ask<{ url: string }>(path`/v1/projects/${project}/runs/${id}/outputs/results`);
    if (!/^https?:\/\//.test(url)) throw new Error("no address");
    location.assign(url);
  });
  const title = run.data?.name || id;
  const above: [string, string][] = [["Overview", "/"], [project, `/projects/${project}`], [title, `/projects/${project}/runs/${id}`]];
  if (study.error) {
    return (
      <Page title="Results" above={above}>
        <Problem error={study.error} retry={() => void study.refetch()} />
      </Page>
    );
  }
  if (!study.data) return <Loading what="the study's results; of large ones that takes a while" />;
  const told = study.data;
  return (
    <Page
      title="Results" above={above}
      actions={
        <Button variant="default" loading={download.isPending} onClick={() => download.mutate(undefined)}>
          Download all of them
        </Button>
      }
    >
      <Problem error={download.error} />
      <Facts
        of={[
          ["Test", NAMES[told.test] ?? told.test],
          ["SNPs tested", `${count(told.tested)} of ${count(told.snps)}`],
          ["Significant at 5e-8", count(told.genome_wide)],
          [`At ${told.level.toExponential(2)} (Bonferroni)`, count(told.bonferroni)],
          ["Genomic inflation λ", told.inflation === null ? "–" : told.inflation.toFixed(3)],
          ["Samples", count(told.summary.samples?.tested ?? 0)],
        ]}
      />
      <Manhattan project={project} run={id} study={told} region={region} setRegion={setRegion} />
      <Hits project={project} run={id} study={told} show={setRegion} />
      <QuantilePlot project={project} run={id} study={told} />
      <Quality study={told} />
    </Page>
  );
}

const NAMES: Record<string, string> = {
  chi_square: "Allelic chi-square", trend: "Cochran-Armitage trend", linear: "Linear regression", logistic: "Logistic regression",
};

interface Given {
  project: string;
  run: string;
  study: StudyView;
}

function Manhattan({ project, run, study, region, setRegion }: Given & { region: Region; setRegion(to: Region): void }) {
  const points = useStudyPoints(project, run, region);
  const told = points.data;
  const alone = region.chromosome !== undefined;
  const places = useMemo(() => placed(study), [study]);
  const dots = useMemo<Dots | null>(() => {
    if (!told) return null;
    const x = told.position.map((position, at) => (alone ? position / 1e6 : places.at(told.chromosome[at]!, position)));
    const kind = told.minus_log10_p.map((y, at) => (y >= GENOME_WIDE ? 2 : alone ? 0 : places.order(told.chromosome[at]!) % 2));
    return { x, y: told.minus_log10_p, kind };
  }, [told, alone, places]);
  const own = study.chromosomes.find(({ chromosome }) => chromosome === region.chromosome);
  const from = own ? (region.begin ?? own.begin) / 1e6 : -places.length * 0.01;
  const to = own ? Math.max((region.end ?? own.end) / 1e6, from + 1e-6) : places.length * 1.01;
  const highest = Math.max(GENOME_WIDE, -Math.log10(study.level), ...(told?.minus_log10_p ?? [])) * 1.08;
  const pick = (low: number, high: number) => {
    if (own) setRegion({ chromosome: own.chromosome, begin: Math.max(0, Math.floor(low * 1e6)), end: Math.ceil(high * 1e6) });
    else setRegion(places.region(low, high));
  };
  return (
    <Section
      title="Manhattan plot"
      aside={
        <div className="row tight">
          <Select
            aria-label="Chromosome" size="xs" w={150} allowDeselect={false} comboboxProps={{ transitionProps: { duration: 0 } }}
            value={region.chromosome ?? ""} onChange={(to) => setRegion(to ? { chromosome: to } : {})}
            data={[{ value: "", label: "whole genome" }, ...study.chromosomes.map(({ chromosome }) => ({ value: chromosome, label: `chromosome ${chromosome}` }))]}
          />
          <Button size="xs" variant="default" disabled={!alone} onClick={() => setRegion({})}>
            All
          </Button>
        </div>
      }
    >
      <Problem error={points.error} retry={() => void points.refetch()} />
      {!told && !points.error && <Loading what="the points" />}
      {dots && told && (
        <>
          <Scatter
            says={`Manhattan plot of ${count(told.there)} SNPs${alone ? ` of chromosome ${region.chromosome}` : ""}: ${count(study.genome_wide)} of all are significant at 5e-8`}
            dots={dots} xLabel={alone ? `position on chromosome ${region.chromosome}, in millions of bases` : "chromosome"} yLabel="−log₁₀ p" from={from} to={to} most={highest}
            ticks={alone ? undefined : places.ticks} levels={[{ at: GENOME_WIDE, dash: [6, 4] }, { at: -Math.log10(study.level), dash: [2, 3] }]} pick={pick}
            tell={(at) => `${told.snp[at]}: chromosome ${told.chromosome[at]}, position ${count(told.position[at]!)}, −log₁₀ p ${number(told.minus_log10_p[at])}`}
          />
          <Text size="sm" c="dimmed">
            {told.snp.length < told.there
              ? `${count(told.snp.length)} of ${count(told.there)} SNPs are drawn: those with the smallest p, and of the others as many as can be seen apart. `
              : `All ${count(told.there)} SNPs of this part are drawn. `}
            Dashed: 5e-8. Dotted: Bonferroni. Drag over a part to look closer.
          </Text>
        </>
      )}
    </Section>
  );
}

/** Chromosomes side by side, each as wide as its SNPs' positions reach. */
function placed({ chromosomes }: StudyView) {
  const begins = new Map<string, { order: number; begin: number; offset: number; span: number }>();
  const whole = chromosomes.reduce((sum, { begin, end }) => sum + Math.max(end - begin, 1), 0);
  let offset = 0;
  chromosomes.forEach(({ chromosome, begin, end }, order) => {
    const span = Math.max(end - begin, 1);
    begins.set(chromosome, { order, begin, offset, span });
    offset += span + whole * 0.008;
  });
  const region = (low: number, high: number): Region => {
    const middle = (low + high) / 2;
    const found = [...begins].find(([, one]) => middle <= one.offset + one.span) ?? [...begins].at(-1)!;
    const [chromosome, one] = found;
    const at = (x: number) => Math.round(one.begin + Math.min(Math.max(x - one.offset, 0), one.span));
    return { chromosome, begin: at(low), end: Math.max(at(high), at(low) + 1) };
  };
  return {
    length: Math.max(offset, 1), region,
    at: (chromosome: string, position: number) => {
      const one = begins.get(chromosome);
      return one ? one.offset + position - one.begin : 0;
    },
    order: (chromosome: string) => begins.get(chromosome)?.order ?? 0,
    ticks: [...begins].map(([text, { offset: left, span }]) => ({ at: left + span / 2, text })),
  };
}

function QuantilePlot({ project, run, study }: Given) {
  const told = useStudyQuantiles(project, run);
  const dots = useMemo<Dots | null>(() => {
    if (!told.data) return null;
    const { expected, observed } = told.data;
    return { x: [...expected].reverse(), y: [...observed].reverse(), kind: observed.map(() => 0) };
  }, [told.data]);
  const [top, setTop] = useState<number | null>(null);
  if (told.error) return <Problem error={told.error} retry={() => void told.refetch()} />;
  if (!dots || dots.x.length === 0) return null;
  const right = top ?? dots.x.at(-1)! * 1.03;
  const seen = dots.y.filter((_, at) => dots.x[at]! <= right);
  return (
    <Section
      title="Quantile-quantile plot"
      aside={
        <Button size="xs" variant="default" disabled={top === null} onClick={() => setTop(null)}>
          All
        </Button>
      }
    >
      <Scatter
        says={`Quantile-quantile plot: observed over expected; genomic inflation is ${study.inflation?.toFixed(3) ?? "not known"}`} dots={dots}
        xLabel="expected −log₁₀ p" yLabel="observed −log₁₀ p" from={0} to={right} most={Math.max(right, ...seen) * 1.05} diagonal
        pick={(_, high) => setTop(high)} tell={(at) => `expected ${number(dots.x[at])}, observed ${number(dots.y[at])}`}
      />
      <Text size="sm" c="dimmed">
        The line is where all would lie if no SNP mattered. λ = {study.inflation?.toFixed(3) ?? "–"}; 1 means that p-values are neither too small nor too
        large as a whole. Drag to look closer at the large ones.
      </Text>
    </Section>
  );
}

const PAGE = 25;

function Hits({ project, run, study, show }: Given & { show(region: Region): void }) {
  const [typed, setTyped] = useState("");
  const [word] = useDebouncedValue(typed.trim(), 250);
  const [after, setAfter] = useState(0);
  const hits = useStudyHits(project, run, word, after, PAGE);
  const there = hits.data?.there ?? 0;
  return (
    <Section title="Hits" aside={<Text c="dimmed" size="sm">smallest p first</Text>}>
      <TextInput
        label="Search" description="Part of a SNP's name, or a place: 2:1000000-2000000" value={typed} maw={420}
        onChange={(e) => {
          setTyped(e.target.value);
          setAfter(0);
        }}
      />
      <Problem error={hits.error} retry={() => void hits.refetch()} />
      {hits.data && there === 0 && <Empty title="No SNP is called so">All SNPs that were tested are searched. Those that were left out are counted below.</Empty>}
      {hits.data && there > 0 && (
        <div className="table-around" tabIndex={0} role="region" aria-label="Hits">
          <table className="table">
            <thead>
              <tr>
                <th className="number">Rank</th>
                <th>SNP</th>
                <th className="number">Chr.</th>
                <th className="number">Position</th>
                <th>A1/A2</th>
                <th className="number">Frequency</th>
                {study.effect && <th className="number">{study.effect} (95 %)</th>}
                <th className="number">p</th>
                <th>
                  <span className="unseen">Show</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {hits.data.hits.map((hit) => (
                <tr key={hit.snp + hit.position}>
                  <td className="number">{count(hit.rank)}</td>
                  <td>{hit.snp}</td>
                  <td className="number">{hit.chromosome}</td>
                  <td className="number">{count(hit.position)}</td>
                  <td>
                    {hit.a1}/{hit.a2}
                  </td>
                  <td className="number">{number(hit.frequency)}</td>
                  {study.effect && <td className="number">{effectOf(hit)}</td>}
                  <td className="number">{pOf(hit)}</td>
                  <td>
                    <Button
                      size="compact-xs" variant="subtle" aria-label={`Show ${hit.snp} in the plot`}
                      onClick={() => {
                        show({ chromosome: hit.chromosome, begin: Math.max(0, hit.position - AROUND), end: hit.position + AROUND });
                        window.scrollTo({ top: 0 });
                      }}
                    >
                      Show
                    </Button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <div className="row">
        <Button size="xs" variant="default" disabled={after === 0} onClick={() => setAfter(Math.max(0, after - PAGE))}>
          Back
        </Button>
        <Button size="xs" variant="default" disabled={after + PAGE >= there} onClick={() => setAfter(after + PAGE)}>
          Further
        </Button>
        {there > 0 && (
          <Text size="sm" c="dimmed">
            {count(after + 1)} to {count(Math.min(after + PAGE, there))} of {count(there)}
          </Text>
        )}
      </div>
    </Section>
  );
}

const effectOf = ({ effect, low, high }: HitView) =>
  effect === null ? "–" : `${number(effect)}${low === null || high === null ? "" : ` (${number(low)} to ${number(high)})`}`;

function pOf({ p, minus_log10_p }: HitView): string {
  if (p) return p < 1e-3 ? p.toExponential(2) : p.toPrecision(3);
  const exponent = Math.ceil(minus_log10_p);
  return `${(10 ** (exponent - minus_log10_p)).toPrecision(3)}e-${exponent}`;
}
