// One request to the hub's HTTP API. The session is a cookie that scripts cannot read; its CSRF token is kept in memory.

const WITHIN_MS = 20_000;

let csrf = "";

export function keepCsrf(token: string): void {
  csrf = token;
}

/** A refusal of the hub, in the hub's own words: what is wrong, and what to do. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

let lost: () => void = () => {};

/** What to do when the hub says that there is no session any more. */
export function whenSignedOut(then: () => void): void {
  lost = then;
}

interface Ask {
  method?: "GET" | "POST" | "DELETE";
  body?: unknown;
  /** For requests that open a session: a refusal is theirs to show. */
  opening?: boolean;
  signal?: AbortSignal;
  /** For what sites are asked before the hub answers. */
  withinMs?: number;
}

export async function ask<T>(path: string, { method = "GET", body, opening = false, signal, withinMs = WITHIN_MS }: Ask = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && !opening && csrf) headers["Hanse-CSRF"] = csrf;
  const ends = AbortSignal.timeout(withinMs);
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, ends]) : ends,
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unavailable", "The hub does not answer.", "Look at your network, then try again.");
  }
  if (response.ok) return (await response.json()) as T;
  const refusal = await refusalOf(response);
  if (response.status === 401 && !opening) lost();
  throw refusal;
}

async function refusalOf(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string; hint: string } };
    return new ApiError(response.status, error.code, error.message, error.hint);
  } catch {
    return new ApiError(response.status, "unavailable", `The hub answered ${response.status}.`, "Try again in a moment.");
  }
}

/** A path with every part encoded: what people call things never becomes part of an address's structure. */
export function path(parts: TemplateStringsArray, ...values: (string | number)[]): string {
  return parts.reduce((made, part, at) => made + encodeURIComponent(values[at - 1] ?? "") + part);
}
