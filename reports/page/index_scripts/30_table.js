// The table of runs. Rows that have not changed keep their elements, so that focus and selection stay.

const drawn = new WeakMap();

function showColumns() {
  const head = h("tr", {}, h("th", { scope: "col", class: "pick" }, h("span", { class: "unseen" }, "Selected")));
  for (const column of COLUMNS) {
    const isSorted = column.key !== null && column.key === list.sort;
    const title = column.key === null ? column.title : h("button", { type: "button", "data-focus": `sort ${column.key}`, onclick: () => sortBy(column.key) }, column.title);
    head.append(h("th", { scope: "col", class: column.kind, "aria-sort": isSorted ? (list.isUp ? "ascending" : "descending") : null }, title));
  }
  keepingFocus(() => byId("table").tHead.replaceChildren(head));
  byId("order").value = list.sort;
}

function sortBy(key) {
  list.isUp = list.sort === key ? !list.isUp : !["best", "spent", "since_gain", "seconds", "hourly", "iterations", "began"].includes(key);
  list.sort = key;
  keepInAddress();
  showColumns();
  showRows();
}

function keepingFocus(change) {
  const key = document.activeElement?.dataset?.focus;
  change();
  if (!key || document.activeElement?.dataset?.focus === key) return;
  [...document.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === key)?.focus();
}

function showRows() {
  const found = listed();
  const rowsOf = (rows) => rows.map((row) => drawn.get(row) ?? drawRow(row));
  const groups = list.group ? grouped(found) : new Map();
  const inOrder = list.group ? [...groups.values()].flat() : found;
  const shown = new Set(inOrder.slice(0, list.shown));
  const wanted = list.group
    ? [...groups].filter(([, rows]) => shown.has(rows[0])).flatMap(([name, rows]) => [drawGroup(name, rows), ...rowsOf(rows.filter((row) => shown.has(row)))])
    : rowsOf([...shown]);
  const body = byId("table").tBodies[0];
  keepingFocus(() => {
    const now = [...body.rows];
    const isSameOrder = now.length === wanted.length && wanted.every((tr, place) => tr.dataset.id === now[place].dataset.id);
    if (!isSameOrder) body.replaceChildren(...wanted);
    else wanted.forEach((tr, place) => tr === now[place] || now[place].replaceWith(tr));
  });
  byId("more").hidden = found.length <= list.shown;
  const all = index.byId.size;
  const some = found.length > list.shown ? `${count(list.shown)} of ` : "";
  byId("listed").textContent = found.length === all ? `${some}${plural(all, "run")}` : `${some}${count(found.length)} of ${plural(all, "run")}`;
}

function drawGroup(name, rows) {
  const words = h("div", { class: "words" }, `${plural(rows.length, "run")}: ${sumsWords(rows)}`);
  return h("tr", { class: "group", "data-id": `group ${name}` }, h("th", { scope: "rowgroup", class: "name", colspan: COLUMNS.length + 1 }, name, words));
}

function drawRow(row) {
  const path = pathOf(row);
  const box = h("input", { type: "checkbox", "aria-label": `Overlay ${path}`, "data-focus": `pick ${row.id}`, disabled: row.curve.length === 0, onchange: (event) => choose(row.id, event.target.checked) });
  box.checked = chosen.has(row.id);
  const tr = h("tr", { "data-id": row.id, class: chosen.has(row.id) ? "is-chosen" : null }, h("td", { class: "pick" }, box), ...cellsOf(row, path));
  drawn.set(row, tr);
  return tr;
}

function cellsOf(row, path) {
  const cell = (kind, ...children) => h("td", { class: kind }, ...children);
  const blank = COLUMNS.slice(1, -2).map((column) => cell(column.kind));
  if (row.state === "unreadable") {
    return [cell("name path", path, h("div", { class: "words" }, row.words)), ...blank, cell("name standing-of", stateOf(row)), cell("began", whenWords(row.began))];
  }
  const models = row.model.replaceAll(",", ", ");
  const under = h("div", { class: "under" }, `${row.problem} · ${row.method} · ${models} · seed ${row.seed} `, stateOf(row), alertsOf(row), h("span", { class: "pace" }, paceWords(row)), sparkline(row));
  const link = h("a", { href: runAddress(row), "data-focus": `open ${row.id}` }, ...path.split("/").flatMap((part, place) => (place ? ["/", h("wbr"), part] : [part])));
  return [
    cell("name path", link, under),
    cell("name problem", row.problem),
    cell("name method", row.method),
    cell("name models", models),
    cell("seed", row.seed),
    cell("best", decimals(row.best, 7), h("div", { class: "quiet" }, gainWords(row))),
    cell("curve", sparkline(row)),
    cell(
      "spent", dollars(row.spent), h("div", { class: "quiet" }, `of ${budgetWords(row.budget)}`), meter(row.spent / row.budget, "meter"),
      row.over ? h("div", { class: "over-words" }, row.over) : null,
      ...row.roles.map(([role, spent]) => h("div", { class: "role" }, `${role} ${dollars(spent)}`)),
    ),
    cell("since", dollars(row.since_gain)),
    cell("time", durationWords(row.seconds), h("div", { class: "quiet" }, endWords(row))),
    cell("hourly", dollars(row.hourly)),
    cell("iterations", row.iterations === null ? "–" : count(row.iterations), h("div", { class: "quiet" }, `of ${count(row.max_iterations)}`)),
    cell("name standing-of", stateOf(row), alertsOf(row)),
    cell("began", whenWords(row.began)),
  ];
}

// The reason of an unreadable run stands below its name.
function stateOf(row) {
  return h("span", { class: `state ${row.state}` }, row.state === "unreadable" ? row.state : row.words);
}

function showTotals() {
  const rows = [...index.byId.values()];
  const reading = index.unread ? ` · reading ${plural(index.unread, "more run")}` : "";
  byId("totals").textContent = `${sumsWords(rows)}${reading}`;
  byId("notes").replaceChildren(...index.notes.map((note) => h("li", {}, note)));
  byId("notes").hidden = index.notes.length === 0;
}
