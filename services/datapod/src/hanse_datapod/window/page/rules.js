// The policy in words, and the privacy budget.
import { capital, card, make, put } from "./dom.js";

export function rulesPage(main, told) {
  put(
    main,
    JSON.stringify([told.policy, told.budget]),
    make("h1", {}, "Rules and budget"),
    make("p", { class: "quiet" }, "The policy file is law here. To change a rule, change the file and start the datapod again."),
    card("This site", make("ul", {}, ...told.policy.map((each) => make("li", {}, `${capital(each)}.`)))),
    budget(told.budget),
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
