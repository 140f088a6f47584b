import { Button, MultiSelect, Select, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { ask, path } from "../api/client";
import { useChange, useProjects } from "../api/queries";
import type { IssuedPerson, PersonView } from "../api/types";
import { Copyable } from "../parts/Copyable";
import { Loading } from "../parts/Loading";
import { Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { ShownOnce } from "../parts/ShownOnce";
import { State } from "../parts/State";
import { Sure } from "../parts/Sure";
import { Table } from "../parts/Table";
import { Ago, Moment } from "../parts/Time";
import { useSession } from "../session/Session";

interface New {
  name: string;
  display: string;
  role: "owner" | "operator";
  projects: string[] | null;
}

/** Who may sign in, for the hub's operators: let in and reset by one-time links, and shut out. */
export function People() {
  const people = useQuery({
    queryKey: ["people"],
    queryFn: async () => (await ask<{ people: PersonView[] }>("/v1/people")).people,
  });
  const adding = useChange((body: New) => ask<IssuedPerson>("/v1/people", { method: "POST", body }));
  const reset = useChange((name: string) => ask<IssuedPerson>(path`/v1/people/${name}/reset`, { method: "POST" }));
  const revoke = useChange((name: string) => ask<PersonView>(path`/v1/people/${name}`, { method: "DELETE" }));
  const [issued, setIssued] = useState<IssuedPerson | null>(null);
  return (
    <Section title="People">
      <Add pending={adding.isPending} add={(body, done) => adding.mutate(body, { onSuccess: (made) => (setIssued(made), done()) })} />
      <Problem error={adding.error ?? reset.error ?? revoke.error} />
      {issued && <Link issued={issued} />}
      <Problem error={people.error} retry={() => void people.refetch()} />
      {people.isLoading && <Loading what="the people" />}
      {people.data && people.data.length > 0 && (
        <Standing
          people={people.data}
          reset={(name) => reset.mutate(name, { onSuccess: setIssued })}
          revoke={(name) => revoke.mutate(name)}
        />
      )}
    </Section>
  );
}

function Add({ pending, add }: { pending: boolean; add(body: New, done: () => void): void }) {
  const projects = useProjects();
  const [name, setName] = useState("");
  const [display, setDisplay] = useState("");
  const [role, setRole] = useState<New["role"]>("owner");
  const [owned, setOwned] = useState<string[]>([]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const body = { name: name.trim(), display, role, projects: role === "owner" && owned.length ? owned : null };
    add(body, () => {
      setName("");
      setDisplay("");
    });
  };
  const still = { transitionProps: { duration: 0 } };
  return (
    <form className="form" onSubmit={submit}>
      <div className="fields">
        <TextInput
          label="Name to sign in with" required maxLength={100} autoComplete="off" value={name} onChange={(e) => setName(e.target.value)}
        />
        <TextInput label="Full name" maxLength={200} autoComplete="off" value={display} onChange={(e) => setDisplay(e.target.value)} />
        <Select
          label="Role" data={["owner", "operator"]} value={role} allowDeselect={false} comboboxProps={still}
          onChange={(to) => setRole((to ?? "owner") as New["role"])}
        />
        {role === "owner" && (
          <MultiSelect
            label="Projects" placeholder={owned.length ? undefined : "all"} data={(projects.data ?? []).map((one) => one.name)}
            value={owned} onChange={setOwned} comboboxProps={still}
          />
        )}
      </div>
      <div>
        <Button type="submit" variant="default" loading={pending}>
          Let in
        </Button>
      </div>
    </form>
  );
}

/** The link is shown this once: whoever opens it first chooses the password. */
function Link({ issued }: { issued: IssuedPerson }) {
  return (
    <ShownOnce says={`Give this link to ${issued.display || issued.name}, by a way that others do not read. It works once.`}>
      <Copyable label={`Link for ${issued.name}`} text={`${location.origin}/#/welcome/${issued.token}`} />
      <Text size="sm" c="dimmed">
        Good until <Moment at={issued.token_expires_at} />.
      </Text>
    </ShownOnce>
  );
}

function Standing({ people, reset, revoke }: { people: PersonView[]; reset(name: string): void; revoke(name: string): void }) {
  const { session } = useSession();
  return (
    <Table label="People" heads={["Person", "State", "Role", "Projects", "Second factor", "Last signed in", "Change"]}>
      {people.map((one) => (
        <tr key={one.name}>
          <td>{one.display ? `${one.display} (${one.name})` : one.name}</td>
          <td>
            <State is={one.state} />
          </td>
          <td>{one.role}</td>
          <td>{one.projects === null ? "all" : one.projects.join(", ")}</td>
          <td>{one.source === "provider" ? "by the provider" : one.totp ? "yes" : "no"}</td>
          <td>
            <Ago at={one.last_sign_in} />
          </td>
          <td>
            {one.state !== "revoked" && one.name !== session?.person && (
              <span className="changes">
                {one.source === "local" && (
                  <Sure
                    size="compact-xs" variant="default" label={`New link for ${one.name}`} act={() => reset(one.name)}
                    asks={`A new link for ${one.name}?`} says="The password and the second factor are void at once, and all sessions end."
                  >
                    New link
                  </Sure>
                )}
                <Sure
                  size="compact-xs" color="red" variant="outline" label={`Shut out ${one.name}`} act={() => revoke(one.name)}
                  asks={`Shut out ${one.name}?`} says="All sessions end at once. What the person did stays in the audit."
                >
                  Shut out
                </Sure>
              </span>
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}
