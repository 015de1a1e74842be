// Failures by kind, and the iterations as a table.

const list = { page: 0, size: 50 };
const FILTERS = [
  ["all", "all iterations", () => true],
  ["best", "new bests", (step) => step.global_gain > 0],
  ["failed", "failed", hasFailed],
  ["repeated", "more than one attempt", (step) => step.attempts > 1],
  ["guide", "guide bought", isGuided],
  ["events", "any event", (step) => step.events.length > 0],
  ["cached", "known programs", (step) => Boolean(step.is_cached)],
  ["cost", "most expensive first", () => true],
];
const MAX_LINKS = 12;

function showFailures() {
  const kinds = new Map();
  for (const fault of run.faults) {
    const name = `${fault.place}\n${fault.kind}`;
    kinds.set(name, [...(kinds.get(name) ?? []), fault]);
  }
  const sorted = [...kinds.values()].sort((one, other) => other.length - one.length);
  const rows = sorted.map((faults) => [
    h("span", { class: "kind" }, faults[0].kind), faults[0].place.toLowerCase(), h("span", { class: "example" }, example(faults)), linksTo(faults), count(faults.length),
  ]);
  refill(byId("kinds"), rows.length ? table(["failure", "where", "for example", "iterations", "times"], rows, { names: 4, caption: "Failures by kind" }) : h("p", {}, "No failures."));
  const isUntold = run.faults.some((fault) => fault.place === "Answer" && !fault.text);
  byId("failures-note").textContent = rows.length ? `An iteration may fail more than once: a failed attempt is followed by another.${isUntold ? " Why an answer held no program is kept only for the last attempt of an iteration." : ""}` : "";
}

function example(faults) {
  const text = faults.find((fault) => fault.text)?.text ?? "";
  const lines = text.trim().split("\n");
  const raised = faults[0].kind.replace("raised ", "");
  return cut(lines.findLast((line) => line.split(":")[0] === raised) ?? lines[0], 110);
}

function linksTo(faults) {
  const met = [...new Set(faults.map((fault) => fault.iteration))];
  const links = met.slice(0, MAX_LINKS).flatMap((iteration) => [stepLink(iteration), " "]);
  return h("span", { class: "links" }, ...links, met.length > MAX_LINKS ? `and ${count(met.length - MAX_LINKS)} more` : null);
}

function listedSteps() {
  const chosen = byId("which").value || "all";
  const found = run.steps.filter(FILTERS.find(([name]) => name === chosen)[2]);
  return chosen === "cost" ? [...found].sort((one, other) => other.step_cost - one.step_cost) : found;
}

function showSteps() {
  const found = listedSteps();
  const pages = Math.max(1, Math.ceil(found.length / list.size));
  list.page = Math.max(0, Math.min(list.page, pages - 1));
  const from = list.page * list.size;
  const some = found.slice(from, from + list.size);
  byId("listed").textContent = found.length ? `${count(from + 1)} to ${count(from + some.length)} of ${count(found.length)}` : "none";
  byId("newer").disabled = list.page === 0;
  byId("older").disabled = list.page >= pages - 1;
  const isMenu = run.menu.length > 0;
  const headings = ["iteration", h("span", {}, term("frontier"), ", ", term("action")), ...(isMenu ? ["model"] : []), "events", "cost", "spent", "objective", "best so far", term("utility"), "attempts"];
  const rows = some.map((step) => [
    stepLink(step.iteration), `${step.frontier}, ${step.action}`, ...(isMenu ? [step.models?.join(", then ") ?? ""] : []),
    h("span", { class: "example" }, [...step.events.map(eventWords), ...(hasFailed(step) ? ["failed"] : []), ...(step.is_cached ? ["known program"] : [])].join(", ")),
    dollars(step.step_cost, 4), dollars(step.spent, 4),
    h(step.global_gain > 0 ? "b" : "span", {}, decimals(step.objective, 7)), decimals(step.best_objective, 7),
    decimals(step.utility, 3), String(step.attempts),
  ]);
  byId("table").replaceChildren(table(headings, rows, { names: isMenu ? 4 : 3, caption: "Iterations" }));
}

function prepareLists() {
  byId("which").append(...FILTERS.map(([name, words]) => h("option", { value: name }, words)));
  byId("which").addEventListener("change", () => {
    list.page = 0;
    showSteps();
  });
  const turn = (by) => () => {
    list.page += by;
    showSteps();
  };
  byId("newer").addEventListener("click", turn(-1));
  byId("older").addEventListener("click", turn(1));
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
}
