import { Accordion, NumberInput, Select, Switch, TagsInput, Text, TextInput } from "@mantine/core";
import { begun, fieldOf, hints, type Field, type Schema, type Schemas } from "./schema";

export type Path = string[];

interface Given {
  schemas: Schemas;
  job: Record<string, unknown>;
  /** What the hub says about a field, by its path with dots. */
  wrong: Record<string, string>;
  change(path: Path, value: unknown): void;
}

/** What people look for first; the rest is in the schema's order. */
const FIRST = ["name", "rounds", "tags"];

/** A form over the job file, made from the job's own schema. What it leaves to the file, it says. */
export function JobForm(given: Given) {
  const schema = given.schemas.Job;
  if (!schema?.properties) return null;
  const fields = Object.entries(schema.properties).map(([name, one]) => ({ name, field: fieldOf(one, given.schemas) }));
  const first = (name: string) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const plain = fields
    .filter(({ field }) => field.kind !== "section" && field.kind !== "open")
    .sort((a, b) => first(a.name) - first(b.name));
  const sections = fields.filter(({ field }) => field.kind === "section");
  const open = fields.filter(({ field }) => field.kind === "open");
  const told = hints(schema);
  return (
    <div className="stack">
      <Fields {...given} schema={schema} path={[]} names={plain.map(({ name }) => name)} />
      <Text size="sm" c="dimmed">
        Written in the file alone: {open.map(({ name }) => name).join(", ")}. Their keys are described in “Every key of a job”.
      </Text>
      <Accordion multiple variant="separated" transitionDuration={0}>
        {sections.map(({ name, field }) => (
          <Accordion.Item key={name} value={name}>
            <Accordion.Control>
              <Text fw={600} component="span">{titleOf(name)}</Text>
              <Text size="sm" c="dimmed">
                {told[name]}
              </Text>
            </Accordion.Control>
            <Accordion.Panel>
              <Part {...given} name={name} field={field} path={[name]} />
            </Accordion.Panel>
          </Accordion.Item>
        ))}
      </Accordion>
    </div>
  );
}

function Part({ name, field, path, ...given }: Given & { name: string; field: Field; path: Path }) {
  const value = at(given.job, path);
  const there = value !== null && value !== undefined;
  return (
    <div className="stack">
      {field.optional && (
        <Switch
          label={`With ${titleOf(name).toLowerCase()}`} checked={there}
          onChange={(e) => given.change(path, e.currentTarget.checked ? begun(field.schema, given.schemas) : undefined)}
        />
      )}
      {(there || !field.optional) && (
        <Fields {...given} schema={field.schema} path={path} names={Object.keys(field.schema.properties ?? {})} />
      )}
    </div>
  );
}

function Fields({ schema, path, names, ...given }: Given & { schema: Schema; path: Path; names: string[] }) {
  const told = hints(schema);
  return (
    <div className="fields">
      {names.map((name) => {
        const one = schema.properties?.[name];
        if (!one) return null;
        const field = fieldOf(one, given.schemas);
        const here = [...path, name];
        if (field.kind === "open" || field.kind === "section") {
          return (
            <Text key={name} size="sm" c="dimmed" className="wide">
              {titleOf(name)} is written in the file. {told[name]}
            </Text>
          );
        }
        return (
          <Input
            key={name} field={field} label={titleOf(name)} hint={told[name]} value={at(given.job, here)}
            wrong={given.wrong[here.join(".")]} change={(value) => given.change(here, value)}
          />
        );
      })}
    </div>
  );
}

interface Shown {
  field: Field;
  label: string;
  hint?: string;
  value: unknown;
  wrong?: string;
  change(value: unknown): void;
}

function Input({ field, label, hint, value, wrong, change }: Shown) {
  const { schema } = field;
  const shared = { label, description: hint, error: wrong };
  const otherwise = schema.default == null ? undefined : String(schema.default);
  switch (field.kind) {
    case "number":
      return (
        <NumberInput
          {...shared} value={typeof value === "number" ? value : ""} placeholder={otherwise}
          allowDecimal={schema.type !== "integer"} hideControls
          onChange={(to) => change(typeof to === "number" ? to : undefined)}
        />
      );
    case "choice":
      return (
        <Select
          {...shared} value={typeof value === "string" ? value : null} placeholder={otherwise} clearable
          data={(schema.enum ?? []).map(String)} onChange={(to) => change(to ?? undefined)}
          comboboxProps={{ transitionProps: { duration: 0 } }}
        />
      );
    case "switch":
      return (
        <Switch
          {...shared} checked={value === undefined ? schema.default === true : value === true}
          onChange={(e) => change(e.currentTarget.checked)}
        />
      );
    case "list":
      return (
        <TagsInput
          {...shared} value={Array.isArray(value) ? value.map(String) : []}
          onChange={(to) => change(to.length ? to : undefined)} comboboxProps={{ transitionProps: { duration: 0 } }}
        />
      );
    default:
      return (
        <TextInput
          {...shared} value={typeof value === "string" ? value : ""} placeholder={otherwise} maxLength={schema.maxLength}
          onChange={(e) => change(e.target.value || undefined)}
        />
      );
  }
}

function at(job: unknown, path: Path): unknown {
  return path.reduce<unknown>((value, name) => (value && typeof value === "object" ? (value as Record<string, unknown>)[name] : undefined), job);
}

function titleOf(name: string): string {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
