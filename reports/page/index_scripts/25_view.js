// What the address keeps of the view, so that a link shows the same: filters, order, groups, selected runs.

const list = { words: "", state: "", group: "", sort: "began", isUp: false, shown: 200 };
const chosen = new Set();
const MORE = 200;

const GROUPS = {
  problem: (row) => row.problem,
  method: (row) => row.method,
  model: (row) => row.model?.replaceAll(",", ", "),
  sweep: (row) => (row.id.includes("/") ? pathOf(row).replace(/\/[^/]*$/, "") : "no sweep"),
};

function keepInAddress() {
  const kept = { state: list.state, group: list.group, words: list.words };
  if (list.sort !== "began" || list.isUp) Object.assign(kept, { sort: list.sort, order: list.isUp ? "up" : "down" });
  // The ids of runs are quoted for an address already.
  const parts = chosen.size ? [`over=${[...chosen].join(",")}`] : [];
  for (const [name, value] of Object.entries(kept)) if (value) parts.push(`${name}=${encodeURIComponent(value)}`);
  history.replaceState(null, "", `${location.pathname}${location.search}${parts.length ? `#${parts.join("&")}` : ""}`);
  rememberAddress();
}

// For the way back from the page of a run in this tab.
function rememberAddress() {
  sessionStorage.setItem("index", location.hash);
}

function readAddress() {
  const found = Object.fromEntries(location.hash.slice(1).split("&").map((part) => [part.split("=", 1)[0], part.slice(part.indexOf("=") + 1)]));
  const word = (name) => decoded(found[name] ?? "");
  chosen.clear();
  for (const id of (found.over ?? "").split(",").filter(Boolean)) chosen.add(id);
  list.words = word("words");
  list.state = [...byId("state").options].some(({ value }) => value === word("state")) ? word("state") : "";
  list.group = word("group") in GROUPS ? word("group") : "";
  list.sort = COLUMNS.some(({ key }) => key && key === word("sort")) ? word("sort") : "began";
  list.isUp = word("order") === "up";
  for (const name of ["words", "state", "group"]) byId(name).value = list[name];
  rememberAddress();
}

// Rows below the name of their group, groups in the order of their first rows.
function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const name = GROUPS[list.group](row) ?? "unreadable";
    groups.set(name, [...(groups.get(name) ?? []), row]);
  }
  return groups;
}

function sum(rows, name) {
  return rows.reduce((total, row) => total + (row[name] ?? 0), 0);
}

function roleSums(rows) {
  const sums = new Map();
  for (const [role, spent] of rows.flatMap((row) => row.roles ?? [])) sums.set(role, (sums.get(role) ?? 0) + spent);
  return [...sums];
}

function statesWords(rows) {
  const states = ["running", "finished", "stopped", "waiting", "unreadable"];
  const counts = states.map((state) => [rows.filter((row) => row.state === state).length, state]);
  return counts.filter(([number]) => number > 0).map(([number, state]) => `${count(number)} ${state}`).join(", ");
}

function sumsWords(rows) {
  const [seconds, hourly] = [sum(rows, "seconds"), sum(rows.filter((row) => row.state === "running"), "hourly")];
  const roles = roleSums(rows).map(([role, spent]) => `${role} ${dollars(spent)}`).join(", ");
  const parts = [statesWords(rows), `${dollars(sum(rows, "spent"))} of ${budgetWords(sum(rows, "budget"))} spent${roles ? ` (${roles})` : ""}`];
  if (seconds > 0) parts.push(durationWords(seconds));
  if (hourly > 0) parts.push(`${dollars(hourly)} an hour now`);
  return parts.join(" · ");
}
