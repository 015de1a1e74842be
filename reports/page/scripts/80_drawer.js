// One iteration from close by: what it cost and earned, what was asked, answered and judged.

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

async function openDrawer(iteration, takesFocus = false) {
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
  const head = step ? stepFacts(step) : h("p", { class: "quiet" }, iteration ? "This iteration is not finished." : "");
  body.replaceChildren(head, h("p", { class: "quiet" }, "Unpacking …"));
  body.scrollTop = 0;
  let texts = null;
  let trouble = "Nothing was written in this iteration.";
  try {
    texts = await textsOf(iteration);
  } catch (error) {
    trouble = `The texts cannot be shown: ${error.message}`;
  }
  if (drawer.iteration !== iteration) return;
  body.replaceChildren(head, ...(texts ? stepTexts(texts, Boolean(step && isUnpaid(step))) : [h("p", { class: "quiet" }, trouble)]));
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
  const ending = step.events.map((event) => h("span", { class: "tag" }, eventWords(event)));
  return h(
    "div",
    {},
    ending.length ? h("p", { class: "parts" }, ...ending) : null,
    step.steered ? h("p", {}, `From the user: ${steeredWords(step)}`) : null,
    facts(run.facts.map(([name, label, unit, digits, key]) => [label, factWords(step[name], unit, digits), key])),
  );
}

// A fact of a step in words; nothing where the run has no such column or the step no such value.
function factWords(value, unit, digits) {
  if (value === undefined || value === null) return null;
  if (Number.isInteger(value) && !unit) return String(value);
  if (Array.isArray(value)) return typeof value[0] === "number" ? value.map((each) => decimals(each, digits)).join(", ") : value.join(", then ") || null;
  if (typeof value !== "number") return value;
  return unit === "dollars" ? exactDollars(value) : unit === "share" ? share(value) : decimals(value, digits);
}

function stepTexts(texts, isUnpaidFor) {
  const own = texts.candidates.filter((each) => !each.is_copy);
  const copies = texts.candidates.filter((each) => each.is_copy);
  const parts = [];
  if (texts.failure) parts.push(h("h3", {}, isUnpaidFor ? "Why the last attempt was not made" : "Why the last attempt failed"), textView(texts.failure));
  if (texts.calls.length) parts.push(h("h3", {}, plural(texts.calls.length, "request")), ...texts.calls.map(callView));
  if (texts.tactics.length) parts.push(h("h3", {}, `Tactics for ${texts.mode}`), tacticsView(texts.tactics));
  if (own.length) parts.push(h("h3", {}, own.length === 1 ? "Candidate" : `${own.length} candidates`), ...own.map(candidateView));
  if (copies.length) parts.push(h("h3", {}, "Copied to another frontier"), h("p", {}, copies.map((each) => each.id).join(", ")));
  return parts;
}

function callView(call) {
  const kind = call.status === "done" ? "" : call.status;
  return h(
    "div",
    { class: "card" },
    h("p", { class: "parts" }, h("b", {}, `${call.role} ${call.attempt}${call.number > 1 ? `, request ${call.number}` : ""}`), h("span", {}, call.entry && call.entry !== call.model ? `${call.entry} (${call.model})` : call.model), h("span", {}, `$${call.cost}`), kind ? h("span", { class: "tag bad" }, kind) : null),
    isCompute(call) ? facts([["seconds", call.seconds.toFixed(2)], ["in doubt", Number(call.bound) ? `at most $${call.bound}` : null]]) : facts([
      ["tokens in", count(call.input_tokens) + (call.cached_tokens ? ` (${count(call.cached_tokens)} cached)` : "")],
      ["tokens out", count(call.output_tokens) + (call.reasoning_tokens ? ` (${count(call.reasoning_tokens)} reasoning)` : "")],
      ["seconds", call.seconds.toFixed(2)], ["ended by", call.finish_reason ?? "–"],
      ["price", `$${call.price_in} / $${call.price_out} per million`], ["price from", call.price_source],
      ["in doubt", Number(call.bound) ? `at most $${call.bound}` : null], ["estimated", call.is_estimated ? "yes" : null],
      ["cache", call.is_cache_hit ? "answered locally" : null], ["provider's id", call.provider_id ?? null],
    ]),
    call.error ? h("p", { class: "bad" }, call.error) : null,
    isCompute(call) ? null : textFold(`Prompt, ${count(call.prompt.length)} characters`, () => call.prompt),
    isCompute(call) ? null : textFold(`Answer, ${count(call.answer.length)} characters`, () => call.answer),
  );
}

function candidateView(candidate) {
  const artifacts = Object.entries(candidate.artifacts ?? {});
  const metrics = Object.entries(candidate.metrics ?? {});
  return h(
    "div",
    { class: "card" },
    h("p", { class: "parts" }, h("b", {}, candidate.id), h("span", {}, candidate.is_valid ? `objective ${decimals(candidate.objective, 9)}` : "failed"), candidate.is_cached ? h("span", { class: "tag" }, "known program, not run again") : null),
    candidate.error ? h("pre", { class: "bad", tabindex: 0 }, candidate.error) : null,
    candidate.changes ? h("p", { class: "quiet lines" }, candidate.changes) : null,
    metrics.length ? facts(metrics.map(([name, value]) => [name, decimals(value, 7)])) : null,
    candidate.inspirations?.length ? h("p", { class: "quiet" }, `Shown beside the parent: ${candidate.inspirations.join(", ")}`) : null,
    candidate.parent_id ? diffFold(candidate.id, `Diff to ${original(candidate.parent_id)}`) : null,
    ...programFolds(candidate),
    ...artifacts.map(([name, text]) => textFold(`Artifact ${name}`, () => String(text))),
    h("p", {}, h("button", { type: "button", onclick: () => { closeDrawer(); showLineage(candidate.id); } }, "Show its lineage")),
  );
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
