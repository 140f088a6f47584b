import { Breadcrumbs, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { Fragment, type ReactNode } from "react";
import { Link } from "wouter";

interface Given {
  title: string;
  /** Pages above this one: names and places. */
  above?: [string, string][];
  actions?: ReactNode;
  state?: ReactNode;
  children: ReactNode;
}

/** A page's head: where it is, what it is, and what can be done. */
export function Page({ title, above = [], actions, state, children }: Given) {
  useDocumentTitle(`${title} · Hanse`);
  return (
    <>
      <header className="page-head">
        <div>
          {above.length > 0 && (
            <nav aria-label="Breadcrumb">
              <Breadcrumbs>
                {above.map(([name, place]) => (
                  <Link key={place} href={place} className="link">
                    {name}
                  </Link>
                ))}
                <Fragment>
                  <Text span size="sm" c="dimmed" className="cut">
                    {title}
                  </Text>
                </Fragment>
              </Breadcrumbs>
            </nav>
          )}
          <div className="page-title">
            <Title order={1}>{title}</Title>
            {state}
          </div>
        </div>
        <div className="page-actions">{actions}</div>
      </header>
      {children}
    </>
  );
}

/** A part of a page under a heading. */
export function Section({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section className="section">
      <div className="section-head">
        <Title order={2} size="h3">
          {title}
        </Title>
        {aside}
      </div>
      {children}
    </section>
  );
}

/** Names and values. */
export function Facts({ of }: { of: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
