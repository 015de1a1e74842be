// On the page of a run below a watched folder: the way back to the index of runs.

if (run.isLive && location.pathname.startsWith("/runs/")) {
  document.querySelector("header").prepend(h("p", { class: "quiet" }, h("a", { href: `/${location.search}${sessionStorage.getItem("index") ?? ""}` }, "← All runs")));
}
