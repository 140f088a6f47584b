// What the site does now: its tasks, its data, what it refused, and the pause.
import { act } from "./api.js";
import { badge, card, facts, make, number, problem, put, time } from "./dom.js";

// Each part is made anew only when it has changed: a focused button stays.
export function nowPage(main, told, again) {
  const parts = ["work", "pause", "data", "refused"].map((name) => make("div", { id: `part-${name}` }));
  put(
    main,
    `now ${told.hub} ${told.project} ${told.participant}`,
    make("h1", {}, told.participant),
    make("p", { class: "quiet" }, `A site of the project ${told.project} at ${told.hub}, since `, time(told.joined_at)),
    make("section", { class: "card" }, make("h2", {}, "At work"), parts[0], parts[1]),
    parts[2],
    parts[3],
  );
  const part = (name, seen, ...children) => put(document.getElementById(`part-${name}`), JSON.stringify(seen), ...children);
  part("work", [told.tasks, told.paused], ...work(told));
  part("pause", told.paused, buttons(told, again));
  part("data", told.data, data(told.data));
  part("refused", [told.refused, told.tasks_finished], refused(told));
}

function work(told) {
  const idle = told.paused
    ? "Nothing: the site is paused."
    : "Nothing. The datapod waits for the hub's next task; there is nothing to do here.";
  if (!told.tasks.length) return [make("p", {}, idle)];
  return told.tasks.map((task) => {
    const marks = [task.masked && badge("masked", "good"), task.private && badge("with noise", "good")];
    const name = `${capitalKind(task.kind)}, ${task.step} of run ${task.run}`;
    return make(
      "div",
      {},
      make("p", {}, make("strong", {}, name), " ", ...marks),
      make("p", { class: "quiet" }, "since ", time(task.since), task.text ? `: ${task.text}` : ""),
      task.fraction === null
        ? make("p", { class: "quiet" }, "It has not said yet how far it is.")
        : make("progress", { max: 1, value: task.fraction, "aria-label": `Progress of ${task.step}` }),
    );
  });
}

function capitalKind(kind) {
  const words = {
    initialize: "Making a first model",
    train: "Training",
    evaluate: "Evaluating a model",
    study: "A study's step",
    prepare: "Counting columns",
  };
  return words[kind] ?? kind;
}

function buttons(told, again) {
  const place = make("div", { class: "buttons" });
  if (told.paused) {
    const resume = make("button", { class: "main", type: "button", on: { click: () => doing(resume, "resume", {}, again) } }, "Go on");
    place.append(resume);
    return place;
  }
  place.append(
    make("button", { type: "button", on: { click: () => sure(again, false) } }, "Pause"),
    make("button", { type: "button", class: "danger", on: { click: () => sure(again, true) } }, "Stop at once"),
  );
  return place;
}

// Asked again before it is done, with a reason for the log.
function sure(again, atOnce) {
  const reason = make("input", { type: "text", id: "reason", maxlength: 200, autocomplete: "off" });
  const says = atOnce
    ? "The task in hand is given up, and nothing more of it leaves. What was sent already stays sent."
    : "The task in hand is finished and answered; then nothing begins.";
  const go = make("button", { class: atOnce ? "danger" : "main", type: "submit" }, atOnce ? "Stop at once" : "Pause");
  const cancel = make("button", { type: "button", on: { click: () => dialog.close() } }, "Leave it running");
  const form = make(
    "form",
    { method: "dialog" },
    make("h2", { id: "sure" }, atOnce ? "Stop all work at once?" : "Pause after the task in hand?"),
    make("p", {}, `${says} The site stays connected, and does no work for the hub until you go on. It stays so over restarts.`),
    make("label", { for: "reason" }, "Why (for the log, at this site)"),
    reason,
    make("div", { class: "buttons" }, cancel, go),
  );
  const dialog = make("dialog", { "aria-labelledby": "sure" }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(go, "pause", { reason: reason.value, at_once: atOnce }, () => {
      dialog.close();
      again();
    });
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}

// One request at a time; why it did not work stands below its button.
export async function doing(button, what, body, then) {
  button.disabled = true;
  button.parentElement.querySelector(".note")?.remove();
  try {
    await act(what, body);
    await then();
  } catch (error) {
    button.parentElement.append(problem(error));
  }
  button.disabled = false;
}

function data(found) {
  if (!found) return card("Data", make("p", { class: "quiet" }, "The data have not been looked at yet."));
  if (!found.fit) {
    return card(
      "Data",
      make("p", {}, badge("refused", "bad")),
      make("p", {}, found.reason),
      found.hint ? make("p", {}, `What to do: ${found.hint}`) : null,
      make("p", { class: "quiet" }, "No task is done until the data are as the project declares them. Looked at ", time(found.at)),
    );
  }
  return card(
    "Data",
    make("p", {}, badge("as the project declares them", "good")),
    facts([
      ["Examples", number(found.examples)],
      ["Set aside for tests", number(found.test_examples)],
      ["Of so many people", found.units === null ? null : number(found.units)],
      ["Bad cells set aside", found.set_aside ? number(found.set_aside) : null],
      ["Device", found.device],
      ["Looked at", time(found.at)],
    ]),
    found.warning ? make("p", { class: "note" }, found.warning) : null,
    found.remarks.length ? make("h3", {}, "Odd, though not refused") : null,
    found.remarks.length ? make("ul", {}, ...found.remarks.map((remark) => make("li", {}, remark))) : null,
  );
}

function refused(told) {
  const list = [...(told.refused ?? [])].reverse();
  if (!list.length) {
    return card("Refused", make("p", { class: "quiet" }, "No task was refused, and none failed. What the policy forbids would stand here, with the reason."));
  }
  return card(
    "Refused",
    make("p", { class: "quiet" }, `${number(told.tasks_finished)} tasks were answered, ${number(told.tasks_refused)} of them so:`),
    make("ul", {}, ...list.map((each) => make("li", {}, badge(each.code, "warn"), ` ${each.step} of run ${each.run}: ${each.reason}`))),
  );
}
