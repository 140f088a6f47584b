import { Button, PasswordInput, Text, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Link } from "wouter";
import { ask } from "../api/client";
import type { SessionView } from "../api/types";
import { Facts, Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { Moment } from "../parts/Time";
import { Keys } from "./Keys";
import { People } from "./People";
import { useSession } from "../session/Session";

export function Settings() {
  const { session } = useSession();
  if (!session) return null;
  return (
    <Page title="Settings" above={[["Overview", "/"]]}>
      <Section title="You">
        <Facts
          of={[
            ["Name", session.person],
            ["Role", session.role],
            ["Projects", session.projects === null ? "all" : session.projects.join(", ") || "none"],
            ["Signed in by", session.source === "local" ? "password" : "your organisation"],
            ["This session ends", <Moment key="end" at={session.expires_at} />],
          ]}
        />
      </Section>
      {session.source === "local" && (
        <>
          <Password session={session} />
          <SecondFactor session={session} />
        </>
      )}
      {session.role === "operator" && (
        <>
          <People />
          <Keys />
          <Section title="Audit of the hub">
            <Link href="/audit" className="link">
              Who signed in, let people in and made keys
            </Link>
          </Section>
        </>
      )}
    </Page>
  );
}

function Password({ session }: { session: SessionView }) {
  const { begin } = useSession();
  const [password, setPassword] = useState("");
  const [next, setNext] = useState("");
  const [code, setCode] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [done, setDone] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    setDone(false);
    try {
      const body = { password, new_password: next, ...(session.totp ? { code: code.replace(/\s/g, "") } : {}) };
      begin(await ask<SessionView>("/v1/session/password", { method: "POST", body }));
      setPassword("");
      setNext("");
      setCode("");
      setDone(true);
    } catch (failed) {
      setError(failed);
    }
  };
  return (
    <Section title="Password">
      <form className="form" onSubmit={(event) => void submit(event)}>
        <PasswordInput label="Present password" required autoComplete="current-password" value={password} onChange={(e) => setPassword(e.target.value)} />
        <PasswordInput
          label="New password" description="At least 12 characters, and not your name." required minLength={12} autoComplete="new-password"
          value={next} onChange={(e) => setNext(e.target.value)}
        />
        {session.totp && <Code value={code} change={setCode} />}
        <Problem error={error} />
        {done && <Text role="status">The password is changed. All your other sessions have ended.</Text>}
        <div>
          <Button type="submit" variant="default">
            Change the password
          </Button>
        </div>
      </form>
    </Section>
  );
}

/** A second factor: six digits of an authenticator. */
function SecondFactor({ session }: { session: SessionView }) {
  const { begin } = useSession();
  const [password, setPassword] = useState("");
  const [secret, setSecret] = useState<{ secret: string; uri: string } | null>(null);
  const [code, setCode] = useState("");
  const [error, setError] = useState<unknown>(null);
  const digits = code.replace(/\s/g, "");

  const step = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      if (session.totp) begin(await ask<SessionView>("/v1/session/totp/remove", { method: "POST", body: { password, code: digits } }));
      else if (secret) begin(await ask<SessionView>("/v1/session/totp/confirm", { method: "POST", body: { code: digits } }));
      else {
        setSecret(await ask<{ secret: string; uri: string }>("/v1/session/totp", { method: "POST", body: { password } }));
        return;
      }
      setSecret(null);
      setPassword("");
      setCode("");
    } catch (failed) {
      setError(failed);
    }
  };

  return (
    <Section title="Second factor">
      <Text c="dimmed">
        {session.totp
          ? "Signing in asks for the six digits of your authenticator."
          : "With an authenticator, a stolen password alone opens nothing."}
      </Text>
      <form className="form" onSubmit={(event) => void step(event)}>
        {!secret && (
          <PasswordInput label="Your password" required autoComplete="current-password" value={password} onChange={(e) => setPassword(e.target.value)} />
        )}
        {secret && (
          <Text>
            Type this key into your authenticator (time-based, six digits): <code className="key">{secret.secret}</code>, or open{" "}
            <a className="link" href={secret.uri}>it there</a>.
          </Text>
        )}
        {(secret || session.totp) && <Code value={code} change={setCode} />}
        <Problem error={error} />
        <div>
          <Button type="submit" variant="default">
            {session.totp ? "Take it away" : secret ? "Confirm" : "Set it up"}
          </Button>
        </div>
      </form>
    </Section>
  );
}

function Code({ value, change }: { value: string; change(to: string): void }) {
  return (
    <TextInput
      label="Code" description="The six digits that your authenticator shows now." inputMode="numeric" required autoComplete="one-time-code"
      value={value} onChange={(e) => change(e.target.value)}
    />
  );
}
