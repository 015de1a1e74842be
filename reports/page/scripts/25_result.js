// What the page opens with: the task, what came of it, the best program, and the settings.

const shown = { task: null, file: 0, mode: "program", id: null };
const MODES = [["program", "Program"], ["diff", "Difference from the start"]];
const LONG_TASK = 600;

function showResult() {
  byId("result").hidden = false;
  showTask();
  showOutcome();
  showSettings();
  showBest();
}

function showTask() {
  const holder = byId("task");
  const text = run.task.trim();
  if (shown.task === text) return;
  shown.task = text;
  if (!text) holder.replaceChildren(h("p", { class: "quiet" }, "This run has no text of its task."));
  else if (text.length <= LONG_TASK) holder.replaceChildren(...paragraphs(text));
  else {
    const end = text.lastIndexOf(" ", LONG_TASK);
    const more = h("button", { type: "button", onclick: () => holder.replaceChildren(...paragraphs(text)) }, "Show the whole task");
    holder.replaceChildren(...paragraphs(`${text.slice(0, end > 0 ? end : LONG_TASK)} …`), more);
  }
}

// Lines that were broken for an editor flow together; lists and indented lines stay as they are.
function paragraphs(text) {
  return text.split(/\n[ \t]*\n+/).map((part) => {
    const title = /^#{1,6}[ \t]+(\S.*)$/.exec(part);
    if (title) return h("p", {}, h("b", {}, ...spans(title[1])));
    const isFlowing = part.split("\n").every((row) => /^(?![-*+>#|]|\d+[.)]\s|```)\S/.test(row));
    return h("p", { class: "lines" }, ...spans(isFlowing ? part.replaceAll("\n", " ") : part));
  });
}

// A text with what stands between backticks as code.
function spans(text) {
  return text.split(/`([^`\n]+)`/).map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

function showOutcome() {
  const [last, start] = [lastStep(), seed()];
  const [words, command] = run.standing.state === "running" ? ["The run is still running"] : run.standing.words.split("; resume with ");
  const parts = [h("p", {}, `${words}.`)];
  if (command) parts.push(h("p", {}, "Resume with ", h("code", {}, command)));
  const best = run.byCandidate.get(original(bestId()));
  if (last && best) {
    const gain = best.objective != null && start?.objective != null ? best.objective - start.objective : null;
    parts.push(h("p", {}, best.iteration === 0
      ? "No candidate is better than the starting program."
      : h("span", {}, `The best program came in `, stepLink(best.iteration, `iteration ${best.iteration}`), ` at ${dollars(run.byIteration.get(best.iteration)?.spent, 4)}: objective ${decimals(best.objective, 9)}${gain === null ? "" : `, ${signed(gain, 4)} over the start`}.`)));
  }
  const validation = best && run.byIteration.get(best.iteration)?.validation;
  if (validation != null) {
    const gap = best.score - validation;
    // Means of equal scores may differ in their last digit.
    const distance = Math.abs(gap) < 1e-9 ? "equal to" : `${decimals(Math.abs(gap), 4)} ${gap < 0 ? "above" : "below"}`;
    parts.push(h("p", {}, `It is the best on the validation examples, with a mean score of ${decimals(validation, 4)}: ${distance} its score on the examples.`));
  }
  const failure = lastFailure();
  if (failure) {
    const where = failure.iteration > lastIteration() ? "an iteration that is not finished" : stepLink(failure.iteration, `iteration ${failure.iteration}`);
    parts.push(h("p", {}, h("span", {}, "Last failure, in ", where, `: ${failure.kind}.`)));
    if (failure.text) parts.push(h("pre", { class: "failure", tabindex: 0, "aria-label": "Last failure" }, failure.text.trim()));
  }
  const key = JSON.stringify([words, bestId(), failure, run.steps.length]);
  if (byId("outcome").dataset.key === key) return;
  byId("outcome").dataset.key = key;
  byId("outcome").replaceChildren(...parts);
}

function lastFailure() {
  const fault = run.faults[run.faults.length - 1] ?? null;
  const step = run.steps.findLast((each) => hasFailed(each) && !isUnpaid(each)) ?? null;
  if (!step || (fault && fault.iteration > step.iteration)) return fault;
  const own = run.faults.findLast((each) => each.iteration === step.iteration);
  return { iteration: step.iteration, kind: own?.kind ?? "no usable program", text: step.failure };
}

function showSettings() {
  const holder = byId("all-settings");
  if (holder.childElementCount) return;
  const listed = (isDefault) => run.settings.filter((each) => each[2] === isDefault);
  const others = listed(true);
  holder.append(settingList(listed(false)), fold(`${plural(others.length, "setting")} at the default`, () => settingList(others)));
}

function settingList(rows) {
  return h("dl", { class: "settings" }, ...rows.map(([name, value, , meant]) => h("div", {}, h("dt", {}, h("code", {}, name), " ", h("b", {}, value)), h("dd", {}, meant.replaceAll("`", "")))));
}

function showBest() {
  const best = run.best;
  byId("best").hidden = !best;
  if (!best || shown.id === best.id) return;
  Object.assign(shown, { id: best.id, file: Math.min(shown.file, best.files.length - 1) });
  const isStart = best.id === seed()?.id;
  byId("best-title").textContent = isStart ? "Best program: the start" : "Best program";
  byId("best-modes").hidden = isStart;
  const files = byId("best-file");
  const names = best.files.map(([path]) => path);
  byId("best-files").hidden = names.length < 2;
  files.replaceChildren(...names.map((path, place) => h("option", { value: place }, path)));
  files.value = shown.file;
  for (const [mode] of MODES) byId(`best-${mode}`).setAttribute("aria-pressed", String(mode === shown.mode));
  showBestText();
}

function showBestText() {
  const [path, text] = run.best.files[shown.file];
  const isDiff = shown.mode === "diff";
  byId("best-changes").textContent = run.best.diff?.length ? `${changedLines(run.best.diff)} from the start` : "";
  for (const name of ["copy", "download", "file"]) byId(`best-${name}`).disabled = isDiff ? name === "file" || run.best.patch === null : text === null;
  const language = languageOf(path || run.heading.program_file, run.heading.language);
  const view = isDiff ? diffView(run.best.diff) : text === null
    ? h("p", { class: "quiet" }, `This program is too large to be shown here; the folder of the run holds it as ${run.heading.program_file}.`)
    : h("pre", { class: "code", tabindex: 0, "aria-label": "Best program" }, ...coloured(text, language));
  byId("best-text").replaceChildren(view);
}

// What the buttons copy and save: the file shown, or the difference.
function bestText() {
  const [path, text] = run.best.files[shown.file];
  const name = (path || run.heading.program_file).split("/").pop();
  if (shown.mode === "program") return { text, name };
  return { text: run.best.patch, name: `${run.heading.program_file}.patch` };
}

function prepareResult() {
  for (const [mode] of MODES) {
    byId(`best-${mode}`).addEventListener("click", () => {
      shown.mode = mode;
      for (const [other] of MODES) byId(`best-${other}`).setAttribute("aria-pressed", String(other === mode));
      showBestText();
    });
  }
  byId("best-file").addEventListener("change", () => {
    shown.file = Number(byId("best-file").value);
    showBestText();
  });
  byId("best-copy").addEventListener("click", () => copyText(bestText().text, byId("best-copy")));
  byId("best-download").addEventListener("click", () => {
    const { text, name } = bestText();
    downloadText(text, name);
  });
  byId("best-bar").addEventListener("submit", (event) => event.preventDefault());
}
