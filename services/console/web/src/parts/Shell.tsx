import { Burger, Button, SegmentedControl, Text, useMantineColorScheme, type MantineColorScheme } from "@mantine/core";
import { memo, useEffect, useRef, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { useHub, useProjects } from "../api/queries";
import { useSession } from "../session/Session";
import { zone } from "./Time";

/** What stands around every page: where one can go, who one is, light or dark. */
export function Shell({ children }: { children: ReactNode }) {
  const [place] = useLocation();
  const [open, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const { data: hub } = useHub();
  useEffect(() => {
    setOpen(false);
    window.scrollTo(0, 0);
  }, [place]);
  return (
    <div className="shell">
      <button type="button" className="skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
      <nav aria-label="Menu" className="topbar">
        <Burger opened={open} onClick={() => setOpen(!open)} size="sm" aria-label="Menu" aria-expanded={open} aria-controls="menu" />
        <Text fw={700}>Hanse</Text>
      </nav>
      <header id="menu" className={open ? "side side-open" : "side"}>
        <Link href="/" className="brand">
          <img src="/icon.svg" alt="" width={28} height={28} />
          <span>
            <b>Hanse</b>
            <Text span size="xs" c="dimmed" display="block" className="cut">
              {hub?.name ?? ""}
            </Text>
          </span>
        </Link>
        <Places place={place} />
        <Person />
      </header>
      <main ref={main} tabIndex={-1} className="main">
        {children}
        <footer className="footer">
          <Text size="xs" c="dimmed">
            Times are in your zone, {zone}.{hub && ` Hub ${hub.version}.`}
          </Text>
        </footer>
      </main>
    </div>
  );
}

const INSIDE: [string, string][] = [
  ["", "Overview"],
  ["/models", "Models"],
  ["/audit", "Audit"],
];

function Places({ place }: { place: string }) {
  const { data: projects } = useProjects();
  const here = /^\/projects\/([^/]+)/.exec(place)?.[1];
  return (
    <nav aria-label="Main" className="places">
      <Place to="/" place={place}>
        Overview
      </Place>
      <Place to="/alerts" place={place}>
        Alerts
      </Place>
      <Text size="xs" c="dimmed" tt="uppercase" mt="md" mb={4} px="xs">
        Projects
      </Text>
      {projects?.map(({ name }) => (
        <div key={name}>
          <Place to={`/projects/${name}`} place={here === name ? `/projects/${name}` : place}>
            {name}
          </Place>
          {here === name && (
            <div className="inside">
              {INSIDE.map(([end, title]) => (
                <Place key={title} to={`/projects/${name}${end}`} place={place}>
                  {title}
                </Place>
              ))}
            </div>
          )}
        </div>
      ))}
      <Place to="/new-project" place={place}>
        + New project
      </Place>
    </nav>
  );
}

function Place({ to, place, children }: { to: string; place: string; children: ReactNode }) {
  return (
    <Link href={to} className="place cut" aria-current={place === to ? "page" : undefined}>
      {children}
    </Link>
  );
}

const Person = memo(function Person() {
  const { session, end } = useSession();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <div className="person">
      <SegmentedControl
        fullWidth
        size="xs"
        aria-label="Colours"
        value={colorScheme}
        onChange={(value) => setColorScheme(value as MantineColorScheme)}
        data={[
          { value: "auto", label: "System" },
          { value: "light", label: "Light" },
          { value: "dark", label: "Dark" },
        ]}
      />
      <Link href="/settings" className="place">
        <b className="cut">{session?.display || session?.person}</b>
        <Text size="xs" c="dimmed">
          {session?.role} · settings
        </Text>
      </Link>
      <Button variant="default" size="xs" fullWidth onClick={() => void end().catch(() => location.reload())}>
        Sign out
      </Button>
    </div>
  );
});
