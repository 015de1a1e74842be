// A page that is opened as a file may not start a worker from another file. A script, which it may load, holds the
// source of the search's worker then.
if (location.protocol === "file:") {
  const source = new URL("../search/worker.js", document.currentScript.src);
  document.write(`<script src="${source}"></script>`); // runs before the script that starts the worker
  window.Worker = class extends Worker {
    constructor() {
      super(URL.createObjectURL(new Blob([searchWorker], { type: "text/javascript" })));
    }
  };
}
