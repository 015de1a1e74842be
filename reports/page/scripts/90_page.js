// The page: its heading, its keys, and its life while the run goes on.

const PAUSE = 1000;
const LONGER_PAUSE = 5000;
const KEY_TERMS = { "Best objective": "objective", Guides: "guide" };

function showHeading() {
  const said = run.heading;
  document.title = `${said.problem}, ${said.method}, ${said.model}`;
  byId("title").textContent = readable(said.problem);
  const standing = byId("standing");
  standing.className = `standing ${run.standing.state}`;
  if (standing.textContent !== standingWords()) standing.textContent = standingWords();
  const guide = said.guide_model && said.guide_model !== said.model ? ` with guide ${said.guide_model}` : "";
  const models = said.model.replaceAll(",", ", ");
  const about = [said.method, models + guide, run.menu.length ? `chosen by ${said.router}` : "", `seed ${said.seed}`, said.budget_policy === "hard" ? "hard budget" : "", said.parallel > 1 ? `${count(said.parallel)} in parallel` : "", said.order === "launch" ? "in the order of launching" : "", said.sandbox ? `sandbox ${said.sandbox}` : "", said.folder, said.origin ? `forked from ${said.origin}` : ""];
  byId("settings").textContent = readable(`${about.filter(Boolean).join(" · ")} · ${run.isLive ? "as of" : "written"} ${run.written.replace("T", " ").replace("+00:00", " UTC")}`);
  showFlight();
  refill(byId("key"), ...keyFigures().map(([name, value, more, bar]) => h("div", {}, h("dt", {}, KEY_TERMS[name] ? term(name, KEY_TERMS[name]) : name), h("dd", {}, value), h("dd", { class: "quiet" }, more), bar ?? null)));
}

function standingWords() {
  const calls = underWay();
  if (run.standing.state !== "running") return run.standing.words;
  const open = openCalls().length;
  if (run.heading.parallel > 1) return `Running: ${plural(lastIteration(), "iteration")} finished, ${plural(open, "request")} in flight`;
  const sofar = calls.reduce((sum, call) => sum + call.cost, 0);
  const now = calls.length ? `, ${plural(calls.length, "request")} for ${dollars(sofar, 4)} so far${open ? `, ${open} in flight` : ""}` : "";
  return `Running: iteration ${lastIteration() + 1}${now}`;
}

function keyFigures() {
  const [said, last, start] = [run.heading, lastStep(), seed()];
  const best = last?.best_objective ?? start?.objective ?? null;
  const gain = best !== null && start?.objective != null && best !== start.objective ? `${signed(best - start.objective, 4)} over the start` : "that of the start";
  const known = said.reference !== null && said.reference !== undefined ? `, score 1 = ${decimals(said.reference)}` : "";
  const bests = run.steps.filter((step) => step.global_gain > 0).length;
  const guides = run.steps.filter(isGuided).length;
  const proven = run.steps.filter((step) => step.events.includes("consolidation_opened")).length;
  const tokens = run.calls.reduce((sum, call) => sum + call.input_tokens + call.output_tokens, 0);
  const over = run.standing.over ? `, ${run.standing.over}` : "";
  return [
    ["Best objective", decimals(best, 8), `${gain}${known}`],
    ["Spent", dollars(spent(), spent() < 10 ? 4 : 2), `of ${budgetWords(said.budget)}${over}`, meter(spent() / said.budget, "meter")],
    ["Iterations", count(run.steps.length), `of ${count(said.max_iterations)}, ${plural(bests, "new best")}`, meter(run.steps.length / said.max_iterations, "meter")],
    ["Requests", count(run.calls.filter((call) => !isCompute(call)).length), `${count(tokens)} tokens`],
    ["Guides", count(guides), proven ? h("span", {}, `${count(proven)} `, term(proven === 1 ? "consolidation" : "consolidations", "consolidation"), " opened") : ""],
    ["Failures", count(run.faults.length), run.faults.length ? `in ${plural(new Set(run.faults.map((fault) => fault.iteration)).size, "iteration")}` : ""],
  ];
}

function showAll() {
  showHeading();
  showResult();
  const hasSteps = run.steps.length > 0;
  byId("waiting").hidden = hasSteps;
  byId("waiting").textContent = "No iteration is finished yet.";
  for (const section of document.querySelectorAll("main > section.of-steps")) section.hidden = !hasSteps;
  byId("bar").hidden = !hasSteps;
  if (!hasSteps) return;
  showLegends();
  showRoles();
  showFront();
  showModels();
  showCallsNote();
  showFailures();
  showSteps();
  showTreeLegend();
  showCandidates();
  listAncestors();
  showRange(view.first, view.followsEnd ? lastIteration() : view.last);
}

async function follow() {
  let pause = PAUSE;
  try {
    const figures = await (await ask(`figures/${lastIteration()}`)).json();
    if (run.id && figures.run_id !== run.id) location.reload();
    const [steps, best] = [run.steps.length, bestId()];
    take(figures);
    document.body.classList.remove("is-cut-off");
    if (run.steps.length === steps) {
      showHeading();
      showOutcome();
      redraw("calls-chart");
    }
    else showNews(best);
  } catch (error) {
    if (!asksAgain(error)) return;
    pause = LONGER_PAUSE;
  }
  if (document.hidden) pause = LONGER_PAUSE;
  window.setTimeout(follow, run.standing.state === "finished" ? LONGER_PAUSE : pause);
}

// New iterations leave alone what a reader has unfolded, unless there is a new best.
function showNews(best) {
  if (best !== bestId() || run.steps.length === 0 || byId("bar").hidden) showAll();
  else {
    showHeading();
    showOutcome();
    showLegends();
    showRoles();
    showFront();
    showModels();
    showCallsNote();
    showFailures();
    if (!byId("table").contains(document.activeElement)) showSteps();
    if (!byId("tree-table").contains(document.activeElement)) showCandidates();
    showRange(view.first, view.followsEnd ? lastIteration() : view.last);
  }
  if (drawer.iteration !== null) byId("next").disabled = drawer.iteration >= lastIteration();
}

function prepareKeys() {
  byId("before").addEventListener("click", () => openDrawer(drawer.iteration - 1));
  byId("next").addEventListener("click", () => openDrawer(drawer.iteration + 1));
  document.addEventListener("keydown", (event) => {
    if (!byId("drawer").open || event.altKey || event.ctrlKey || event.metaKey) return;
    const isInside = byId("drawer").contains(event.target) || event.target === document.body;
    if (event.key === "Escape") closeDrawer();
    else if (isInside && !event.target.closest("pre") && event.key === "ArrowLeft" && !byId("before").disabled) openDrawer(drawer.iteration - 1);
    else if (isInside && !event.target.closest("pre") && event.key === "ArrowRight" && !byId("next").disabled) openDrawer(drawer.iteration + 1);
  });
  byId("range").addEventListener("input", checkRange);
  byId("range").addEventListener("submit", (event) => {
    event.preventDefault();
    showRange(Number(byId("first").value), Number(byId("last").value));
  });
  byId("all").addEventListener("click", () => showRange(1, lastIteration()));
  window.addEventListener("hashchange", openNamed);
}

// The browser says what is wrong with a number, and does not submit it.
function checkRange() {
  const [first, last] = [byId("first"), byId("last")];
  for (const box of [first, last]) box.max = Math.max(1, lastIteration());
  const isTurned = first.value !== "" && last.value !== "" && Number(last.value) < Number(first.value);
  last.setCustomValidity(isTurned ? "The last iteration must not come before the first." : "");
}

function openNamed() {
  const wanted = /^#t=(\d+)$/.exec(location.hash);
  if (wanted && (run.byIteration.has(Number(wanted[1])) || wanted[1] === "0")) openDrawer(Number(wanted[1]), true);
}

function begin() {
  const figures = JSON.parse(byId("data").textContent);
  run.isLive = figures.is_live;
  document.body.classList.toggle("is-live", run.isLive);
  takeParts([...document.querySelectorAll("script.rows")].map((part) => JSON.parse(part.textContent)));
  take(figures);
  prepareTerms();
  prepareResult();
  prepareAcross();
  prepareTree();
  prepareSearch();
  prepareCompared();
  prepareLists();
  prepareDrawer();
  prepareKeys();
  showRangeQuietly();
  showAll();
  openNamed();
  let width = window.innerWidth;
  new ResizeObserver(() => {
    if (byId("page").clientWidth === width) return;
    width = byId("page").clientWidth;
    drawAll();
  }).observe(byId("page"));
  new ResizeObserver(keepFree).observe(byId("bar"));
  if (run.isLive) {
    prepareIdeas();
    follow();
  }
}

// What is scrolled to, by a link or by the keyboard, stays below the bar.
function keepFree() {
  const bar = byId("bar");
  const isSticky = window.getComputedStyle(bar).position === "sticky";
  document.documentElement.style.scrollPaddingTop = isSticky ? `${bar.offsetHeight + 8}px` : "";
}

function showRangeQuietly() {
  view.first = 1;
  view.last = Math.max(1, lastIteration());
}

begin();
