import { Button, Modal, Select, Text, Textarea } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { stringify } from "yaml";
import { ask, path } from "../api/client";
import { runOf, useChange } from "../api/queries";
import type { ModelView } from "../api/types";
import { Copyable } from "../parts/Copyable";
import { Loading } from "../parts/Loading";
import { bytes, number } from "../parts/numbers";
import { Facts, Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { save } from "../parts/save";
import { State } from "../parts/State";
import { Sure } from "../parts/Sure";
import { Moment } from "../parts/Time";
import { cardOf } from "./card";
import { Lineage } from "./Lineage";

export function Model({ project, version }: { project: string; version: string }) {
  const model = useQuery({
    queryKey: ["model", project, version],
    queryFn: () => ask<ModelView>(path`/v1/projects/${project}/models/${version}`),
  });
  const download = useChange(async () => {
    const { url } = await ask<{ url: string }>(path`/v1/projects/${project}/models/${version}/download`);
    if (!/^https?:\/\//.test(url)) throw new Error("no address");
    location.assign(url); // a presigned link to the object store, which sends a file
  });
  const run = useQuery({
    ...runOf(project, model.data?.lineage.run ?? ""), enabled: model.data !== undefined, retry: false, staleTime: 60_000,
  });
  if (model.error) return <Problem error={model.error} retry={() => void model.refetch()} />;
  if (!model.data) return <Loading what="the version" />;
  const one = model.data;
  const { lineage } = one;
  return (
    <Page
      title={`Version ${one.version}`}
      above={[["Overview", "/"], [project, `/projects/${project}`], ["Models", `/projects/${project}/models`]]}
      state={<State is={one.stage} />}
      actions={
        <>
          <Stage project={project} model={one} />
          {one.stage === "production" && <RollBack project={project} />}
          <Button loading={download.isPending} onClick={() => download.mutate(undefined)}>
            Download
          </Button>
        </>
      }
    >
      <Problem error={download.error} />
      <Section title="Metrics">
        {Object.keys(one.metrics).length === 0 ? (
          <Text c="dimmed">It was not evaluated.</Text>
        ) : (
          <Facts of={Object.entries(one.metrics).sort().map(([name, value]) => [name, number(value)])} />
        )}
      </Section>
      <Section title="Where it came from">
        <Lineage project={project} model={one} />
        <Facts
          of={[
            ["Made", <Moment key="at" at={one.created_at} />],
            ["In its stage since", <Moment key="since" at={one.promoted_at ?? one.created_at} />],
            ["Seed", String(lineage.seed)],
            ["Strategy", nameOf(lineage.strategy)],
          ]}
        />
        <Copyable label="Architecture" text={stringify(one.architecture)} />
      </Section>
      {run.data?.privacy && (
        <Section title="Privacy">
          <Text className="prose">{run.data.privacy}</Text>
        </Section>
      )}
      <Section title="File and signature">
        <Facts
          of={[
            ["Size", bytes(one.size)],
            ["Digest (SHA-256)", <code key="d">{one.digest}</code>],
            ["Signed by (Ed25519)", <code key="k">{one.public_key}</code>],
            ["Signature", <code key="s">{one.signature}</code>],
          ]}
        />
        <Text size="sm" c="dimmed">
          The file is safetensors. <code>hanse model download {one.version}</code> verifies digest and signature; the signed record holds all
          that is needed to do so offline.
        </Text>
        <div className="row">
          <Button
            variant="default" size="xs"
            onClick={() => save(`${project}-${one.version}.json`, JSON.stringify(one, null, 2), "application/json")}
          >
            Save the signed record
          </Button>
          <Button
            variant="default" size="xs" onClick={() => save(`${project}-${one.version}-card.md`, cardOf(project, one, run.data?.privacy ?? ""), "text/markdown")}
          >
            Save the card
          </Button>
        </div>
      </Section>
    </Page>
  );
}

const nameOf = (strategy: Record<string, unknown>): string => {
  const reduction = strategy.reduction as { name?: string } | undefined;
  return reduction?.name?.replaceAll("_", " ") ?? "–";
};

/** Takes the version in production out, and puts the one that was there before it back. */
function RollBack({ project }: { project: string }) {
  const [, go] = useLocation();
  const back = useChange(() => ask<ModelView>(path`/v1/projects/${project}/models/rollback`, { method: "POST", body: { reason: "rolled back in the console" } }));
  return (
    <>
      <Sure
        variant="default" label="Roll back" asks="Roll back?" says="The version that was in production before this one returns there, and this one is archived. The audit keeps it."
        act={() => back.mutate(undefined, { onSuccess: (to) => go(`/projects/${project}/models/${to.version}`) })}
      >
        Roll back
      </Sure>
      <Problem error={back.error} />
    </>
  );
}

const STAGES = ["candidate", "staging", "production", "archived"];

function Stage({ project, model }: { project: string; model: ModelView }) {
  const [open, setOpen] = useState(false);
  const [stage, setStage] = useState<string>("production");
  const [reason, setReason] = useState("");
  const promote = useChange(() =>
    ask<ModelView>(path`/v1/projects/${project}/models/${model.version}/promote`, { method: "POST", body: { stage, reason } }),
  );
  return (
    <>
      <Button variant="default" onClick={() => setOpen(true)}>
        Move to a stage
      </Button>
      <Modal
        opened={open} onClose={() => setOpen(false)} title={`Move version ${model.version}`} lockScroll={false}
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <div className="stack">
          <Select
            label="Stage" description="One version at most is in staging, and one in production: the present one makes room." data={STAGES}
            value={stage} onChange={(to) => setStage(to ?? "production")} allowDeselect={false}
            comboboxProps={{ transitionProps: { duration: 0 }, withinPortal: false }}
          />
          <Textarea label="Why" description="The audit keeps it." autosize minRows={2} maxLength={2000} value={reason} onChange={(e) => setReason(e.target.value)} />
          <Problem error={promote.error} />
          <div className="row end">
            <Button loading={promote.isPending} onClick={() => promote.mutate(undefined, { onSuccess: () => setOpen(false) })}>
              Move it
            </Button>
          </div>
        </div>
      </Modal>
    </>
  );
}
