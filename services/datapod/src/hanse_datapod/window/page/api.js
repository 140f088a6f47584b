// Requests to the datapod. Each ends within a time, and an answer that refuses is an error that says what to do.
const KEPT = "hanse-window";
const LONGEST_MS = 20_000;

export class Refused extends Error {
  constructor(status, told) {
    super(told.message);
    this.status = status;
    this.hint = told.hint || "";
  }
}

let site = "";

export function choose(name) {
  site = name;
}

// The link's secret stands behind the #, which went to nobody. It leaves the address before anything else is done.
export async function enter() {
  const found = location.hash.match(/^#enter=([\w-]+)$/);
  if (!found) return;
  history.replaceState(null, "", location.pathname);
  sessionStorage.removeItem(KEPT);
  const { token } = await send("POST", "enter", { secret: found[1] });
  sessionStorage.setItem(KEPT, token);
}

export async function leave() {
  await send("POST", "leave", {});
  sessionStorage.removeItem(KEPT);
}

export function ask(what, query = {}) {
  return send("GET", what, undefined, query);
}

export function act(what, body = {}) {
  return send("POST", what, body);
}

async function send(method, what, body, query = {}) {
  const words = new URLSearchParams(site ? { ...query, site } : query);
  let answer;
  try {
    answer = await fetch(`/api/${what}?${words}`, {
      method,
      headers: {
        "Hanse-Window": sessionStorage.getItem(KEPT) ?? "",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(LONGEST_MS),
    });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Refused(0, {
      message: late ? "The datapod did not answer in time." : "The datapod does not answer.",
      hint: "It may be restarting. If this stays, look at its log; a restart needs a new link.",
    });
  }
  const told = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, told.error);
  return told;
}
