// The job's form, as the hub describes it (/v1/openapi.json): nothing about a job is written down here a second time.

import { useQuery } from "@tanstack/react-query";
import { ask } from "../api/client";

export interface Schema {
  $ref?: string;
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
  items?: Schema;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  pattern?: string;
  maxLength?: number;
}

export type Schemas = Record<string, Schema>;

export const useSchemas = () =>
  useQuery({
    queryKey: ["openapi"],
    queryFn: async () => (await ask<{ components: { schemas: Schemas } }>("/v1/openapi.json")).components.schemas,
    staleTime: Infinity,
  });

/** A field as a form shows it. */
export interface Field {
  /** `section` has fields of its own; `open` is whatever its kind understands, and is written in the file. */
  kind: "text" | "number" | "choice" | "switch" | "section" | "list" | "open";
  schema: Schema;
  /** Whether it may be left out altogether (null in the file). */
  optional: boolean;
}

export function resolve(schema: Schema, all: Schemas): Schema {
  const name = schema.$ref?.split("/").at(-1);
  const found = name ? all[name] : undefined;
  return found ? { ...found, ...("default" in schema ? { default: schema.default } : {}) } : schema;
}

export function fieldOf(given: Schema, all: Schemas): Field {
  let schema = resolve(given, all);
  const choices = schema.anyOf ?? schema.oneOf;
  let optional = false;
  if (choices) {
    const real = choices.filter((one) => one.type !== "null");
    optional = real.length < choices.length;
    schema = { ...resolve(real[0] ?? {}, all), default: given.default };
    if (real.length > 1 && !real.every((one) => one.type === "number" || one.type === "integer")) {
      return { kind: "open", schema, optional };
    }
  }
  if (schema.enum) return { kind: "choice", schema, optional };
  switch (schema.type) {
    case "boolean":
      return { kind: "switch", schema, optional };
    case "integer":
    case "number":
      return { kind: "number", schema, optional };
    case "string":
      return { kind: "text", schema, optional };
    case "array":
      return { kind: resolve(schema.items ?? {}, all).type === "string" ? "list" : "open", schema, optional };
    case "object":
      return { kind: schema.properties ? "section" : "open", schema, optional };
    default:
      return { kind: "open", schema, optional };
  }
}

/** What a description says of each field: its lines `name: what it is`. */
export function hints(schema: Schema): Record<string, string> {
  const found: Record<string, string> = {};
  let names: string[] = [];
  for (const line of (schema.description ?? "").split("\n")) {
    const begins = /^ {4}([a-z_][a-z_, ]*): (.*)$/.exec(line);
    if (begins) {
      names = begins[1]!.split(", ");
      for (const name of names) found[name] = begins[2]!;
    } else if (/^ {8}\S/.test(line)) {
      for (const name of names) found[name] += ` ${line.trim()}`;
    } else names = [];
  }
  return Object.fromEntries(Object.entries(found).map(([name, text]) => [name, plain(text)]));
}

/** A docstring's words as a form says them. */
function plain(text: string): string {
  const said = text.replaceAll("`", "").replace(/\bNone: /g, "left out: ");
  return said.charAt(0).toUpperCase() + said.slice(1);
}

/** A section that is put into a file: with what it must say. */
export function begun(schema: Schema, all: Schemas): Record<string, unknown> {
  const made: Record<string, unknown> = {};
  for (const name of schema.required ?? []) {
    const { schema: inner, kind } = fieldOf(schema.properties?.[name] ?? {}, all);
    if (inner.default != null) made[name] = inner.default;
    else if (kind === "choice") made[name] = inner.enum?.[0];
    else if (kind === "number") made[name] = inner.minimum ?? 1;
    else if (kind === "switch") made[name] = false;
    else made[name] = kind === "section" ? {} : "";
  }
  return made;
}
