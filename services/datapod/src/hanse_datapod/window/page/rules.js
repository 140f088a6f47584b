// What the project asks and the site has agreed to, the policy in words, and the privacy budget.
import { capital, card, make, put, time } from "./dom.js";
import { doing } from "./now.js";

export function rulesPage(main, told, again) {
  put(
    main,
    JSON.stringify([told.policy, told.budget, told.terms]),
    make("h1", {}, "Rules and budget"),
    make("p", { class: "quiet" }, "The policy file is law here. To change a rule, change the file and start the datapod again."),
    wanted(told.terms.asked, again),
    agreed(told.terms.agreed),
    card("This site", make("ul", {}, ...told.policy.map((each) => make("li", {}, `${capital(each)}.`)))),
    budget(told.budget),
  );
}

// Terms that nobody here has agreed to: they are read first, and what has changed is shown.
function wanted(terms, again) {
  if (!terms) return null;
  const read = make("input", { type: "checkbox", id: "read-terms" });
  const go = make("button", { type: "button", class: "main", disabled: true }, "Agree to these terms");
  read.addEventListener("change", () => (go.disabled = !read.checked));
  go.addEventListener("click", () => doing(go, "agree", { digest: terms.digest }, again));
  const marked = terms.changes.map((line) => make("span", { class: `line ${line[0] === "+" ? "added" : "removed"}` }, line));
  return card(
    "The project asks for other terms",
    make("p", { class: "note" }, "Nobody here has agreed to these. What the site does until then, its policy says below."),
    make("pre", { tabindex: 0, class: "wrapped", "aria-label": "The terms that are asked for" }, terms.lines.join("\n")),
    marked.length ? make("details", { open: true }, make("summary", {}, "What is otherwise than in those that were agreed to last"), make("pre", { tabindex: 0, class: "wrapped" }, ...marked)) : null,
    make("div", { class: "buttons" }, make("label", { class: "check", for: "read-terms" }, read, "I have read them, and this site agrees"), go),
  );
}

function agreed(terms) {
  if (!terms) return null;
  return card(
    "Terms of the project",
    make("p", {}, `${terms.by} agreed to version ${terms.version}, `, time(terms.at), "."),
    make("details", {}, make("summary", {}, "What was agreed to"), make("pre", { tabindex: 0, class: "wrapped" }, terms.lines.join("\n"))),
  );
}

function budget(rows) {
  const shown = rows.map((row) => {
    const limited = row.epsilon !== null;
    const text = limited
      ? `${four(row.spent)} of ${four(row.epsilon)} is spent, ${four(row.remaining)} is left`
      : `${four(row.spent)} is spent; no limit is set`;
    return make(
      "div",
      {},
      make("h3", {}, row.scope === "site" ? "The whole site" : `Project ${row.scope}`),
      limited ? make("meter", { min: 0, max: row.epsilon || 1, value: row.spent, "aria-label": `Epsilon spent of ${row.scope}` }) : null,
      make("p", {}, `Epsilon ${text} (at delta ${row.delta}).`),
    );
  });
  const says = "Epsilon says how much answers with noise may tell of one person at most: the less, the better hidden.";
  return card("Privacy budget", make("p", { class: "quiet" }, says), ...shown);
}

function four(value) {
  return Number(value.toPrecision(4)).toString();
}
