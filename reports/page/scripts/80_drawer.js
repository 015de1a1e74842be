// One iteration from close by: what changed, what was asked and answered, how it was judged, what
// it cost, and last what the controller thought of it.

const drawer = { iteration: null, opener: null };
const MAX_TEXT = 200_000;
const BESIDE = window.matchMedia("(min-width: 100rem)");

// Beside the page where there is room, otherwise a modal dialog.
function unfoldDrawer() {
  if (byId("drawer").open) return;
  if (BESIDE.matches) byId("drawer").open = true;
  else {
    byId("drawer").showModal();
    byId("drawer-title").focus();
  }
}

function prepareDrawer() {
  byId("close").addEventListener("click", closeDrawer);
  byId("drawer").addEventListener("click", (event) => event.target === byId("drawer") && closeDrawer());
  // The browser itself closes a dialog at Escape or a gesture.
  byId("drawer").addEventListener("close", () => byId("drawer").open || closeDrawer());
  BESIDE.addEventListener("change", () => {
    if (!byId("drawer").open) return;
    byId("drawer").close();
    unfoldDrawer();
  });
}

// Something that is fetched when it is unfolded.
function fold(title, content, { isOpen = false } = {}) {
  const summary = h("summary", {}, title);
  const node = h("details", {}, summary);
  let isBegun = false;
  const load = async () => {
    if (!node.open || isBegun) return;
    isBegun = true;
    const waiting = h("p", { class: "quiet" }, "Unpacking …");
    node.append(waiting);
    try {
      waiting.replaceWith(await content(summary));
    } catch (error) {
      isBegun = false;
      waiting.replaceWith(h("p", { class: "bad" }, `This text cannot be shown: ${error.message}`));
    }
  };
  node.addEventListener("toggle", load);
  node.open = isOpen;
  return node;
}

function textFold(title, content, options) {
  return fold(title, async () => textView((await content()) ?? ""), options);
}

function textView(text) {
  if (!text) return h("p", { class: "quiet" }, "Empty.");
  const pre = h("pre", { tabindex: 0 }, cut(text, MAX_TEXT));
  if (text.length <= MAX_TEXT) return pre;
  const more = h("button", { type: "button" }, `Show all ${count(text.length)} characters`);
  more.addEventListener("click", () => {
    pre.textContent = readable(text);
    more.remove();
  });
  return h("div", {}, pre, more);
}

// Names with values; the key of an explained word may follow.
function facts(pairs) {
  return h("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== null).map(([name, value, key]) => h("div", {}, h("dt", {}, key ? term(name, key) : name), h("dd", {}, value))));
}

// The candidate that is named comes first, otherwise the last one.
async function openDrawer(iteration, takesFocus = false, candidate = null) {
  if (!byId("drawer").contains(document.activeElement)) drawer.opener = document.activeElement;
  drawer.iteration = iteration;
  hideTip();
  pointAt(iteration);
  history.replaceState(null, "", `#t=${iteration}`);
  document.body.classList.add("has-drawer");
  byId("drawer-title").textContent = iteration ? `Iteration ${iteration}` : "Starting program";
  unfoldDrawer();
  byId("before").disabled = iteration <= 0;
  byId("next").disabled = iteration >= lastIteration();
  if (takesFocus) byId("drawer-title").focus();
  const body = byId("drawer-body");
  const step = run.byIteration.get(iteration);
  const controller = step ? [h("h3", {}, "Controller"), stepFacts(step)] : [h("p", { class: "quiet" }, iteration ? "This iteration is not finished." : "")];
  body.replaceChildren(h("p", { class: "quiet" }, "Unpacking …"));
  body.scrollTop = 0;
  let texts = null;
  let trouble = "Nothing was written in this iteration.";
  try {
    texts = await textsOf(iteration);
  } catch (error) {
    trouble = `The texts cannot be shown: ${error.message}`;
  }
  if (drawer.iteration !== iteration) return;
  body.replaceChildren(...(texts ? stepTexts(texts, step, candidate) : [h("p", { class: "quiet" }, trouble)]), ...controller);
}

function closeDrawer() {
  if (drawer.iteration === null) return;
  drawer.iteration = null;
  byId("drawer").close();
  document.body.classList.remove("has-drawer");
  history.replaceState(null, "", location.pathname + location.search);
  pointAt(null);
  drawer.opener?.focus?.();
}

function stepFacts(step) {
  return facts(run.facts.map(([name, label, unit, digits, key]) => [label, factWords(step[name], unit, digits), key]));
}

// A fact of a step in words; nothing where the run has no such column or the step no such value.
function factWords(value, unit, digits) {
  if (value === undefined || value === null) return null;
  if (Number.isInteger(value) && !unit) return String(value);
  if (Array.isArray(value)) return typeof value[0] === "number" ? value.map((each) => decimals(each, digits)).join(", ") : value.join(", then ") || null;
  if (typeof value !== "number") return value;
  return unit === "dollars" ? exactDollars(value) : unit === "share" ? share(value) : decimals(value, digits);
}

const ASKING = ["generation", "retry"];

// Each candidate with the requests of its attempt, then what an attempt left without a program.
function stepTexts(texts, step, wanted) {
  const own = texts.candidates.filter((each) => !each.is_copy).reverse();
  own.sort((one, other) => (other.id === wanted) - (one.id === wanted));
  const copies = texts.candidates.filter((each) => each.is_copy);
  const requestsOf = (candidate) => texts.calls.filter((call) => ASKING.includes(call.role) && call.attempt === attemptOf(candidate));
  const told = new Set(own.flatMap(requestsOf));
  const events = (step?.events ?? []).map((event) => h("span", { class: "tag" }, eventWords(event)));
  const others = texts.calls.filter((call) => !told.has(call));
  const parts = [
    events.length ? h("p", { class: "parts" }, ...events) : null,
    step?.steered ? h("p", {}, `From the user: ${steeredWords(step)}`) : null,
    ...own.flatMap((each) => candidateView(each, requestsOf(each))),
  ];
  if (texts.failure) parts.push(h("h3", {}, step && isUnpaid(step) ? "Why the last attempt was not made" : "Why the last attempt failed"), textView(texts.failure));
  if (texts.tactics.length) parts.push(h("h3", {}, `Tactics for ${texts.mode}`), tacticsView(texts.tactics));
  if (others.length) parts.push(h("h3", {}, own.length ? "Other requests" : plural(others.length, "request")), ...others.map((call) => h("div", { class: "card" }, callHead(call), ...callTexts(call))));
  if (texts.calls.length) parts.push(h("h3", {}, "Dollars"), ...texts.calls.map(billView));
  if (copies.length) parts.push(h("h3", {}, "Copied to another frontier"), h("p", {}, copies.map((each) => each.id).join(", ")));
  return parts.filter(Boolean);
}

function callHead(call) {
  const kind = call.status === "done" ? "" : call.status;
  return h("p", { class: "parts" }, h("b", {}, `${call.role} ${call.attempt}${call.number > 1 ? `, request ${call.number}` : ""}`), h("span", {}, call.entry && call.entry !== call.model ? `${call.entry} (${call.model})` : call.model), h("span", {}, `$${call.cost}`), kind ? h("span", { class: "tag bad" }, kind) : null);
}

function callTexts(call) {
  const error = call.error ? h("p", { class: "bad" }, call.error) : null;
  if (isCompute(call)) return [error];
  return [error, ...["prompt", "answer"].map((name) => textFold(`${name === "prompt" ? "Prompt" : "Answer"}, ${count(call[name].length)} characters`, () => call[name]))];
}

function billView(call) {
  return h("div", { class: "bill" }, callHead(call), isCompute(call) ? facts([["seconds", call.seconds.toFixed(2)], ["in doubt", Number(call.bound) ? `at most $${call.bound}` : null]]) : facts([
    ["tokens in", count(call.input_tokens) + (call.cached_tokens ? ` (${count(call.cached_tokens)} cached)` : "")],
    ["tokens out", count(call.output_tokens) + (call.reasoning_tokens ? ` (${count(call.reasoning_tokens)} reasoning)` : "")],
    ["seconds", call.seconds.toFixed(2)], ["ended by", call.finish_reason ?? "–"],
    ["price", `$${call.price_in} / $${call.price_out} per million`], ["price from", call.price_source],
    ["in doubt", Number(call.bound) ? `at most $${call.bound}` : null], ["estimated", call.is_estimated ? "yes" : null],
    ["cache", call.is_cache_hit ? "answered locally" : null], ["provider's id", call.provider_id ?? null],
  ]));
}

function candidateView(candidate, requests) {
  const parent = original(candidate.parent_id);
  const before = run.byCandidate.get(parent);
  const gain = candidate.is_valid && before?.objective != null ? candidate.objective - before.objective : null;
  const isSeveral = requests.length > 1;
  return [h(
    "div", { class: "card" },
    h("h3", { class: "parts" }, candidate.id, h("span", {}, candidate.is_valid ? `objective ${decimals(candidate.objective, 9)}` : h("span", { class: "bad" }, "failed")),
      gain === null ? null : h("span", { class: isBetter(gain, 0) ? "good" : gain === 0 ? "quiet" : "bad" }, `${signed(gain, 4)} over ${parent}`),
      candidate.is_cached ? h("span", { class: "tag" }, "known program, not run again") : null),
    parent ? h("h4", {}, "Change from ", stepLink(before?.iteration ?? 0, parent, parent), candidate.diff ? h("span", { class: "quiet" }, ` ${changedLines(candidate.diff)}`) : null) : null,
    candidate.changes ? h("p", { class: "quiet lines" }, candidate.changes) : null,
    parent ? diffView(candidate.diff) : null,
    ...programFolds(candidate),
    ...requests.flatMap((call) => [isSeveral ? callHead(call) : null, ...callTexts(call)]),
    ...feedbackView(candidate),
    relatives(candidate),
    h("p", { class: "tools" },
      h("button", { type: "button", onclick: () => { closeDrawer(); showLineage(candidate.id); } }, "Show its lineage"),
      h("button", { type: "button", onclick: () => { closeDrawer(); pick(candidate.id); byId("compare").scrollIntoView({ block: "nearest" }); } }, isPicked(candidate.id) ? "Stop comparing" : "Compare")),
  )];
}

// How a candidate was judged: its error, what was measured, and what the evaluator said.
function feedbackView(candidate) {
  const metrics = Object.entries(candidate.metrics ?? {});
  const artifacts = Object.entries(candidate.artifacts ?? {});
  if (!candidate.error && !metrics.length && !artifacts.length) return [];
  return [
    h("h4", {}, "Feedback"),
    candidate.error ? h("pre", { class: "bad", tabindex: 0, "aria-label": "Error" }, candidate.error) : null,
    metrics.length ? facts(metrics.map(([name, value]) => [name, decimals(value, 7)])) : null,
    ...artifacts.map(([name, text]) => textFold(`Artifact ${name}`, () => String(text))),
  ];
}

const MAX_CHILDREN = 24;

function relatives(candidate) {
  const links = (all) => all.slice(0, MAX_CHILDREN).flatMap((each) => [stepLink(each.iteration, each.id, each.id), " "]);
  const children = run.candidates.filter((each) => !each.is_copy && original(each.parent_id) === candidate.id);
  const beside = (candidate.inspirations ?? []).map((id) => run.byCandidate.get(original(id))).filter(Boolean);
  const line = (words, all) => (all.length ? h("p", { class: "quiet" }, words, ...links(all), all.length > MAX_CHILDREN ? `and ${count(all.length - MAX_CHILDREN)} more` : null) : null);
  return h("div", {}, line("Shown beside the parent: ", beside), line(`${plural(children.length, "child", "children")}: `, children));
}

function tacticsView(tactics) {
  return h("ol", { class: "tactics" }, ...tactics.map((each) => h(
    "li",
    {},
    h("b", {}, String(each.idea ?? "")),
    h("p", {}, String(each.description ?? "")),
    h("p", { class: "quiet" }, [each.approach_type, each.what_to_optimize, each.cautions].filter(Boolean).join(" · ")),
  )));
}
