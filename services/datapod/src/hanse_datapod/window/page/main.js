// The page: who may look, which part is shown, and the state that is asked for again and again.
import { ask, choose, enter, leave } from "./api.js";
import { codePage } from "./code.js";
import { make, problem, put, time } from "./dom.js";
import { leftPage } from "./left.js";
import { nowPage } from "./now.js";
import { rulesPage } from "./rules.js";

const EVERY_MS = 2000;
const GIVEN_UP_MS = 10 * 60_000; // of failures in a row, after which a button asks again
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const nav = document.getElementById("nav");
let told = null;
let failing = null;
let timer = 0;

function part() {
  const name = location.hash.slice(1);
  return ["now", "rules", "left", "code"].includes(name) ? name : "now";
}

function show(fresh) {
  const name = part();
  for (const link of nav.children) {
    if (link.getAttribute("href") === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${nav.querySelector("[aria-current]").textContent} · Site window · Hanse`;
  if (name === "now" && told) nowPage(main, told, poll);
  else if (name === "rules" && told) rulesPage(main, told, poll);
  else if (name === "left" && fresh) leftPage(main);
  else if (name === "code" && fresh) codePage(main);
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden) return; // it goes on once somebody looks
  try {
    told = await ask("status");
    failing = null;
    state();
    show(false);
  } catch (error) {
    if (error.status === 401) return out(error);
    failing ??= Date.now();
    put(banner, `failing ${error.message}`, problem(error));
    if (Date.now() - failing > GIVEN_UP_MS) {
      banner.append(make("button", { type: "button", on: { click: () => { failing = null; poll(); } } }, "Try again"));
      return;
    }
  }
  timer = setTimeout(poll, failing ? 5 * EVERY_MS : EVERY_MS);
}

function state() {
  if (!told.paused && told.terms.asked) {
    const more = make("a", { href: "#rules" }, "Read them");
    return put(banner, `terms ${told.terms.asked.digest}`, make("p", { class: "note" }, "The project asks for other terms, to which nobody here has agreed. ", more));
  }
  if (!told.paused) return put(banner, "");
  const { since, reason } = told.paused;
  const text = ["Paused", since ? " since " : "", since ? time(since) : "", reason ? `: ${reason}` : "", ". No task begins until you go on."];
  put(banner, JSON.stringify(told.paused), make("p", { class: "note" }, ...text));
}

// Nobody has entered, or no longer: nothing of the site is left on the page.
function out(error) {
  told = null;
  nav.hidden = true;
  document.getElementById("right").replaceChildren();
  put(banner, "");
  delete main.dataset.key;
  main.replaceChildren(
    make("h1", {}, "The site's window"),
    problem(error),
    make("p", {}, "A link into this window is made at the site, by who may use its home folder. It is good once, for ten minutes."),
    make("pre", { tabindex: 0 }, "hanse site window --home DIR\ndocker exec hanse-datapod python -m hanse_datapod window --home /var/lib/hanse-datapod"),
  );
}

async function begin() {
  try {
    await enter();
    const { sites } = await ask("sites");
    const right = document.getElementById("right");
    const end = make("button", { type: "button" }, "Leave");
    end.addEventListener("click", async () => {
      clearTimeout(timer);
      await leave().catch(() => {});
      out({ message: "You have left the window.", hint: "" });
    });
    right.replaceChildren(...(sites.length > 1 ? [choice(sites)] : []), end);
    nav.hidden = false;
    show(true);
    await poll();
  } catch (error) {
    out(error);
  }
}

function choice(sites) {
  const select = make("select", { "aria-label": "Site" }, ...sites.map((name) => make("option", { value: name }, name)));
  select.addEventListener("change", () => {
    choose(select.value);
    told = null;
    delete main.dataset.key;
    show(true);
    poll();
  });
  return select;
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#enter=")) return location.reload();
  if (nav.hidden) return;
  delete main.dataset.key;
  show(true);
  main.focus();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !nav.hidden) poll();
});
begin();
