// Elements, made of texts: nothing that the site says is ever read as HTML.
export function make(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") for (const [event, does] of Object.entries(value)) made.addEventListener(event, does);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function card(title, ...children) {
  return make("section", { class: "card" }, make("h2", {}, title), ...children);
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", {}, ...shown.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

export function badge(text, kind = "") {
  return make("span", { class: `badge ${kind}` }, text);
}

export function problem(error) {
  const text = [error.message, error.hint].filter(Boolean).map(sentence).join(" ");
  return make("p", { class: "note bad", role: "alert" }, text);
}

function sentence(text) {
  return /[.!?]$/.test(text) ? capital(text) : `${capital(text)}.`;
}

export function capital(text) {
  return text && text[0].toUpperCase() + text.slice(1);
}

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

// A time in the reader's own zone.
export function time(text) {
  const at = new Date(text);
  return make("time", { datetime: text, title: text }, FULL.format(at));
}

export function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  let at = 0;
  let value = bytes;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

export function number(value) {
  return new Intl.NumberFormat().format(value);
}

// Replaces what stands there, unless it is the same: a reader's place and selection stay.
export function put(place, key, ...children) {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...children.flat().filter(Boolean));
}
