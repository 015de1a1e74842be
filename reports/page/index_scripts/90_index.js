// The index: what is shown first, and its life while runs go on.

const PAUSE = 1000;
const LONGER_PAUSE = 5000;
const UNREAD_PAUSE = 50;

function showIndex() {
  const isWaiting = index.kind !== "runs";
  document.title = isWaiting ? `Waiting: ${index.folder}` : `Runs: ${index.folder}`;
  byId("title").textContent = readable(index.folder);
  byId("waiting").hidden = !isWaiting;
  byId("waiting").textContent = "There is no run here yet. This page shows it as soon as one begins.";
  byId("runs").hidden = isWaiting;
  byId("totals").hidden = isWaiting;
  showStanding();
  if (isWaiting) return;
  showTotals();
  showRows();
  keepingFocus(showOverlay);
}

function showStanding() {
  const isRunning = [...index.byId.values()].some((row) => row.state === "running");
  const standing = byId("standing");
  const words = index.kind !== "runs" ? "Waiting for a run" : isRunning ? "Live" : "No run is running";
  standing.className = `standing ${isRunning ? "running" : ""}`;
  if (standing.textContent !== words) standing.textContent = words;
}

async function followIndex() {
  let pause = PAUSE;
  try {
    const found = await (await ask(`index/${index.revision}`)).json();
    if (found.kind === "run") return location.reload();
    const before = [index.kind, index.unread, index.notes.join()].join();
    document.body.classList.remove("is-cut-off");
    if (takeIndex(found) || before !== [index.kind, index.unread, index.notes.join()].join()) showIndex();
    else showStanding();
    if (index.unread) pause = UNREAD_PAUSE;
    else if (document.hidden) pause = LONGER_PAUSE;
  } catch (error) {
    if (!asksAgain(error)) return null;
    pause = LONGER_PAUSE;
  }
  return window.setTimeout(followIndex, pause);
}

function beginIndex() {
  document.body.classList.add("is-live");
  takeIndex(JSON.parse(byId("data").textContent));
  byId("words").addEventListener("input", (event) => filterBy({ words: event.target.value.trim() }));
  byId("state").addEventListener("change", (event) => filterBy({ state: event.target.value }));
  // Narrow windows show some columns only, and their headings with them.
  byId("order").append(...COLUMNS.filter((column) => column.key).map(({ key, title }) => h("option", { value: key }, title)));
  readAddress();
  byId("group").addEventListener("change", (event) => filterBy({ group: event.target.value }));
  window.addEventListener("hashchange", () => {
    readAddress();
    showColumns();
    for (const row of index.byId.values()) drawn.delete(row); // boxes of other runs are ticked
    showIndex();
  });
  byId("order").addEventListener("change", (event) => sortBy(event.target.value));
  byId("reverse").addEventListener("click", () => sortBy(list.sort));
  byId("notify").addEventListener("change", switchNotifications);
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("axis").addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", () => filterBy({ shown: list.shown + MORE }));
  byId("clear").addEventListener("click", clearChosen);
  byId("quantity").addEventListener("change", (event) => {
    overlay.quantity = event.target.value;
    showOverlay();
  });
  new ResizeObserver(() => keepingFocus(showOverlay)).observe(byId("page"));
  showColumns();
  showIndex();
  window.setTimeout(followIndex, index.unread ? UNREAD_PAUSE : PAUSE);
}

function filterBy(change) {
  Object.assign(list, change);
  keepInAddress();
  showRows();
}

beginIndex();
