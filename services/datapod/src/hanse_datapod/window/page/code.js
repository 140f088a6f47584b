// The site's own code: read it, see what has changed, approve it by its digest.
import { ask } from "./api.js";
import { badge, card, make, problem } from "./dom.js";
import { doing } from "./now.js";

export async function codePage(main) {
  delete main.dataset.key;
  const list = make("div", {}, make("p", { class: "quiet" }, "Reading the code."));
  main.replaceChildren(
    make("h1", {}, "Code of this site"),
    make("p", { class: "quiet" }, "Code that you have mounted runs on your data, within the sandbox of your policy, and only while its digest is approved."),
    list,
  );
  const again = async () => {
    try {
      const told = await ask("code");
      list.replaceChildren(...(told.code.length ? told.code.map((each) => one(each, told.approvals, again)) : [empty()]));
    } catch (error) {
      list.replaceChildren(problem(error));
    }
  };
  await again();
}

function empty() {
  return card(
    "None is mounted",
    make("p", {}, "This datapod has no code but its own: built-in models alone are trained. To bring code, start it with --code FILE; see docs/bring-your-code.md."),
  );
}

function one(code, approvals, again) {
  if (code.error) return card(code.name, make("p", { class: "note bad" }, code.error));
  const by = { policy: "approved by the policy file", administrator: "approved here" }[code.approved];
  return card(
    code.name,
    make("p", {}, by ? badge(by, "good") : badge("not approved: it does not run", "warn")),
    make("p", { class: "digest" }, `SHA-256 ${code.digest}`),
    code.imports.length ? make("p", {}, `It imports ${code.imports.join(", ")}.`) : null,
    changes(code),
    ...Object.entries(code.files).map(([name, text]) =>
      make("details", { open: Object.keys(code.files).length === 1 }, make("summary", {}, name), pre(text.split("\n"))),
    ),
    approval(code, approvals, again),
  );
}

function changes(code) {
  if (code.changes === null) return make("p", { class: "quiet" }, "No code of this name was approved before.");
  if (!code.changes.length) return make("p", { class: "quiet" }, "It is as it was when it was approved last.");
  return make("details", { open: true }, make("summary", {}, "What has changed since the last approval"), pre(code.changes, true));
}

function pre(lines, marked = false) {
  const kind = (line) => (!marked || /^(---|\+\+\+) /.test(line) ? "" : ({ "+": "added", "-": "removed" }[line[0]] ?? ""));
  return make("pre", { tabindex: 0 }, ...lines.map((line) => make("span", { class: `line ${kind(line)}` }, line)));
}

function approval(code, approvals, again) {
  const place = make("div", { class: "buttons" });
  if (code.approved === "administrator") {
    const back = make("button", { type: "button", class: "danger" }, "Withdraw the approval");
    back.addEventListener("click", () => doing(back, "withdraw", { digest: code.digest }, again));
    place.append(back);
  } else if (!code.approved && approvals) {
    const read = make("input", { type: "checkbox", id: `read-${code.digest}` });
    const go = make("button", { type: "button", class: "main", disabled: true }, "Approve this code");
    read.addEventListener("change", () => (go.disabled = !read.checked));
    go.addEventListener("click", () => doing(go, "approve", { digest: code.digest }, again));
    place.append(make("label", { class: "check", for: `read-${code.digest}` }, read, "I have read it, and it may run on our data"), go);
  } else if (!code.approved) {
    return make("p", { class: "note" }, "This site approves code in its policy file alone: add the digest to site_code.digests there. To approve it here, write site_code: {approvals: true}.");
  }
  return place;
}
