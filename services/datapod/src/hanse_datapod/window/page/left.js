// Everything that ever left: the outbox log, page by page, the newest first.
import { act, ask } from "./api.js";
import { badge, card, make, number, problem, size, time } from "./dom.js";

const NAMES = {
  update: "update",
  "masked-update": "masked update",
  extra: "further arrays",
  tally: "numbers of examples and metrics",
  sum: "part of a sum",
  result: "answer",
  progress: "progress",
  presence: "sign of life",
  "link-request": "request for a link",
  join: "request to join",
  consent: "consent to the project's terms",
  repaired: "note: log repaired",
  missing: "note: entry missing",
  paused: "decision: paused",
  resumed: "decision: resumed",
  "code-approved": "decision: code approved",
  "code-withdrawn": "decision: code withdrawn",
  moved: "decision: home moved",
  renewed: "decision: members renewed",
  "ledger-restored": "decision: ledger restored",
  "log-restored": "decision: log restored",
};

export function leftPage(main) {
  delete main.dataset.key;
  const search = make("input", { type: "search", id: "search", maxlength: 200, autocomplete: "off" });
  const signs = make("input", { type: "checkbox", id: "signs" });
  const rows = make("tbody");
  const after = make("div", { "aria-live": "polite" });
  const verified = make("div", { "aria-live": "polite" });
  const form = make(
    "form",
    { class: "row", role: "search" },
    make("div", { class: "grow" }, make("label", { for: "search" }, "Search: run, step, kind, digest, whom to"), search),
    make("label", { class: "check", for: "signs" }, signs, "Signs of life, too"),
    make("button", { class: "main", type: "submit" }, "Search"),
  );
  let asked = 0;
  const more = async (before) => {
    const mine = ++asked;
    after.replaceChildren(make("p", { class: "quiet" }, "Reading the log."));
    try {
      const told = await ask("outbox", {
        search: search.value,
        signs: signs.checked ? "1" : "0",
        ...(before ? { before: String(before) } : {}),
      });
      if (mine !== asked) return;
      if (!before) rows.replaceChildren();
      rows.append(...told.entries.map(row));
      after.replaceChildren(...ending(told, rows.childElementCount, more));
    } catch (error) {
      if (mine === asked) after.replaceChildren(problem(error));
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    more();
  });
  signs.addEventListener("change", () => more());
  const verify = make("button", { type: "button" }, "Verify the whole log");
  verify.addEventListener("click", async () => {
    verify.disabled = true;
    try {
      const found = await act("verify");
      const good = `All ${number(found.entries)} entries are as they were written.`;
      verified.replaceChildren(
        found.intact
          ? make("p", {}, badge("intact", "good"), ` ${good}`)
          : make("p", { class: "note bad" }, `Entry ${found.broken} is broken: ${found.reason}.`),
      );
    } catch (error) {
      verified.replaceChildren(problem(error));
    }
    verify.disabled = false;
  });
  main.replaceChildren(
    make("h1", {}, "What left this site"),
    make("p", { class: "quiet" }, "Each thing is written down before it leaves. Nobody can change or drop an entry unseen."),
    make("div", { class: "row" }, verify, verified),
    card("The log", form, table(rows), after),
  );
  more();
}

function table(rows) {
  const head = ["When", "What", "For which task", "To whom", "Size"];
  return make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col", class: name === "Size" ? "number" : "" }, name)))),
    rows,
  );
}

function row(entry) {
  const masked = { true: badge("masked", "good"), false: badge("not masked", "warn") }[entry.masked];
  return make(
    "tr",
    {},
    make("td", { "data-label": "When" }, time(entry.time)),
    make(
      "td",
      { "data-label": "What" },
      `${NAMES[entry.what] ?? entry.what} `,
      masked,
      entry.shape ? make("div", { class: "quiet" }, entry.shape) : null,
      entry.digest ? make("div", { class: "digest", title: "SHA-256 of what left" }, entry.digest) : null,
    ),
    make("td", { "data-label": "For" }, entry.task ? entry.task.replace("/", ", ") : ""),
    make("td", { "data-label": "To" }, entry.to),
    make("td", { class: "number", "data-label": "Size" }, entry.size ? size(entry.size) : ""),
  );
}

function ending(told, shown, more) {
  if (told.before !== null) {
    const text = told.looked_through ? "Search in older entries" : "Older entries";
    return [make("button", { type: "button", on: { click: () => more(told.before) } }, text)];
  }
  return [make("p", { class: "quiet" }, shown ? "That is all." : "Nothing that left is as you search for.")];
}
