import { Alert, Button, PasswordInput, Text, TextInput, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useLocation } from "wouter";
import { ApiError, ask } from "../api/client";
import type { SessionView, SignInWays } from "../api/types";
import { Loading } from "../parts/Loading";
import { Problem } from "../parts/Problem";
import { useSession } from "../session/Session";

const REFUSED: Record<string, string> = {
  state: "Signing in took too long, or was begun in another window. Begin again.",
  provider: "The sign-in service refused, or was left before the end. Begin again.",
  token: "The sign-in service's answer could not be verified. Begin again; if this stays, tell the hub's operator.",
  "no-role": "You are known, but have no rights at this hub. Ask its operator for them.",
  revoked: "Your access to this hub was ended. Ask its operator.",
  unavailable: "The sign-in service does not answer. Try again in a moment.",
};

/** By name and password, with a code where that is set; or by the organisation's own sign-in. */
export function SignIn({ refused }: { refused?: string }) {
  useDocumentTitle("Sign in · Hanse");
  const { over } = useSession();
  const ways = useQuery({ queryKey: ["sign-in"], queryFn: () => ask<SignInWays>("/v1/sign-in", { opening: true }) });
  return (
    <main className="alone">
      <div className="card sign-in">
        <img src="/icon.svg" alt="" width={40} height={40} />
        <Title order={1} size="h2">
          Sign in
        </Title>
        {over && <Alert color="blue" role="status">Your session has ended. Sign in, and this page goes on where it was.</Alert>}
        {refused && <Alert color="red" role="alert">{REFUSED[refused] ?? "Signing in was refused. Begin again."}</Alert>}
        <Problem error={ways.error} retry={() => void ways.refetch()} />
        {ways.isLoading && <Loading what="the ways to sign in" />}
        {ways.data?.provider && <ByProvider label={ways.data.provider.label} />}
        {ways.data?.local && <ByPassword />}
        {ways.data && !ways.data.local && !ways.data.provider && (
          <Text>No way to sign in is set up at this hub. Its operator does so.</Text>
        )}
      </div>
    </main>
  );
}

function ByProvider({ label }: { label: string }) {
  const [error, setError] = useState<unknown>(null);
  const go = async () => {
    try {
      const { url } = await ask<{ url: string }>("/v1/session/provider", { method: "POST", body: {}, opening: true });
      if (!/^https?:\/\//.test(url)) throw new Error("no address of a sign-in service");
      location.assign(url);
    } catch (failed) {
      setError(failed);
    }
  };
  return (
    <>
      <Button onClick={() => void go()}>Continue with {label}</Button>
      <Problem error={error} />
    </>
  );
}

function ByPassword() {
  const { begin } = useSession();
  const [place, go] = useLocation();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const [second, setSecond] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const digits = code.replace(/\s/g, "");
      const body = { name: name.trim(), password, ...(second && digits ? { code: digits } : {}) };
      const session = await ask<SessionView>("/v1/session", { method: "POST", body, opening: true });
      if (place.startsWith("/sign-in")) go("/", { replace: true });
      begin(session);
    } catch (failed) {
      if (failed instanceof ApiError && failed.code === "second-factor" && !second) setSecond(true);
      else setError(failed);
    } finally {
      setBusy(false);
    }
  };

  return (
    <form onSubmit={(event) => void submit(event)} className="stack">
      <TextInput label="Name" autoComplete="username" required autoFocus value={name} onChange={(e) => setName(e.target.value)} />
      <PasswordInput
        label="Password" autoComplete="current-password" required value={password}
        onChange={(e) => setPassword(e.target.value)}
      />
      {second && (
        <TextInput
          label="Code" description="The six digits that your authenticator shows now." inputMode="numeric" autoFocus
          autoComplete="one-time-code" required value={code} onChange={(e) => setCode(e.target.value)}
        />
      )}
      <Problem error={error} title="You are not signed in" />
      <Button type="submit" loading={busy}>
        Sign in
      </Button>
      <Text size="sm" c="dimmed">
        No account, or the password is lost? The hub's operator makes a one-time link for you, under “People” in the settings.
      </Text>
    </form>
  );
}
