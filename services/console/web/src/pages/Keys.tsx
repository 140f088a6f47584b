import { Button, Checkbox, Select, Text, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { ask, path } from "../api/client";
import { useChange, useKeys, useProjects } from "../api/queries";
import type { KeyView } from "../api/types";
import { Copyable } from "../parts/Copyable";
import { Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { ShownOnce } from "../parts/ShownOnce";
import { State } from "../parts/State";
import { Sure } from "../parts/Sure";
import { Table } from "../parts/Table";
import { Moment } from "../parts/Time";

const DAY = 86_400;
const SHOWN = 200;

/** Keys of programs: made, seen without their secrets, revoked. */
export function Keys() {
  const keys = useKeys();
  const projects = useProjects();
  const [name, setName] = useState("");
  const [role, setRole] = useState("owner");
  const [project, setProject] = useState("");
  const [days, setDays] = useState("90");
  const [readOnly, setReadOnly] = useState(false);
  const make = useChange((body: object) => ask<KeyView & { key: string }>("/v1/keys", { method: "POST", body }));
  const revoke = useChange((id: string) => ask<KeyView>(path`/v1/keys/${id}`, { method: "DELETE" }));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    make.mutate(
      { name: name.trim(), role, project: role === "owner" && project ? project : null, expires_in: days ? Number(days) * DAY : null, read_only: readOnly },
      { onSuccess: () => setName("") },
    );
  };
  const standing = (keys.data ?? []).filter((key) => key.role !== "site").slice(0, SHOWN);
  return (
    <Section title="Keys">
      <Text c="dimmed">
        Programs, notebooks and the command line use keys. What people do here needs none. A key that you make ends with your own rights.
      </Text>
      <form className="row" onSubmit={submit}>
        <TextInput label="What it is for" required maxLength={200} value={name} onChange={(e) => setName(e.target.value)} />
        <Select
          label="May do" w={150} value={role} onChange={(to) => setRole(to ?? "owner")} allowDeselect={false} comboboxProps={{ transitionProps: { duration: 0 } }}
          data={[{ value: "owner", label: "as an owner" }, { value: "operator", label: "as an operator" }]}
        />
        {role === "owner" && (
          <Select
            label="In" w={170} value={project} onChange={(to) => setProject(to ?? "")} allowDeselect={false} comboboxProps={{ transitionProps: { duration: 0 } }}
            data={[{ value: "", label: "all projects" }, ...(projects.data ?? []).map((one) => one.name)]}
          />
        )}
        <Select
          label="Good for" w={130} value={days} onChange={(to) => setDays(to ?? "")} allowDeselect={false} comboboxProps={{ transitionProps: { duration: 0 } }}
          data={[{ value: "1", label: "a day" }, { value: "30", label: "30 days" }, { value: "90", label: "90 days" }, { value: "365", label: "a year" }, { value: "", label: "ever" }]}
        />
        <Checkbox label="reading alone" checked={readOnly} onChange={(event) => setReadOnly(event.currentTarget.checked)} mb={8} />
        <Button type="submit" loading={make.isPending}>
          Make a key
        </Button>
      </form>
      <Problem error={make.error ?? revoke.error} />
      {make.data && (
        <ShownOnce says={`The key ${make.data.name}. It is shown this once: the hub keeps only a hash.`}>
          <Copyable label={`Key ${make.data.name}`} text={make.data.key} />
        </ShownOnce>
      )}
      <Problem error={keys.error} retry={() => void keys.refetch()} />
      {standing.length > 0 && (
        <Table label="Keys" heads={["For", "State", "May do", "In", "Made by", "Made", "Good until", ["Change", "unseen"]]}>
          {standing.map((key) => (
            <tr key={key.id}>
              <td className="said">{key.name || key.id}</td>
              <td>
                <State is={stateOf(key)} why={key.void ? "who made it is no operator any more" : undefined} />
              </td>
              <td>{key.read_only ? `reading, as ${key.role}` : `as ${key.role}`}</td>
              <td>{key.project ?? "all projects"}</td>
              <td>{key.created_by}</td>
              <td>
                <Moment at={key.created_at} />
              </td>
              <td>{key.expires_at ? <Moment at={key.expires_at} /> : "ever"}</td>
              <td>
                {stateOf(key) === "active" && (
                  <Sure
                    size="compact-xs" variant="default" label={`Revoke ${key.name || key.id}`} asks={`Revoke ${key.name || key.id}?`}
                    says="Programs that use it are refused from now on. This cannot be taken back." act={() => revoke.mutate(key.id)}
                  >
                    Revoke
                  </Sure>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}

function stateOf(key: KeyView): string {
  if (key.revoked) return "revoked";
  if (key.void) return "void";
  return key.expires_at && Date.parse(key.expires_at) <= Date.now() ? "expired" : "active";
}
