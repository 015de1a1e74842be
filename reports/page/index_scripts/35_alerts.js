// What the server says of a run that wants attention: words in its row, and a notification of the desktop if the reader wants them.

const told = new Set();

function alertsOf(row) {
  // The state says already why a run failed, unless it waits for its first iteration.
  const words = Object.entries(row.alerts).filter(([kind]) => kind !== "failed" || row.state === "waiting").map(([, text]) => text);
  return words.length ? h("span", { class: "alert" }, words.join(", ")) : null;
}

// Each alert once; those from before the switch stand in the table.
function tellAlerts(rows) {
  for (const row of rows) {
    for (const [kind, words] of Object.entries(row.alerts)) {
      const key = `${row.id} ${kind}`;
      if (byId("notify").checked && !told.has(key)) notify(readable(pathOf(row)), { body: readable(words), tag: key });
      told.add(key);
    }
  }
}

// Some browsers have notifications only in service workers, and throw.
function notify(title, options) {
  try {
    new Notification(title, options);
  } catch (error) {
    refuseNotifications();
  }
}

function refuseNotifications() {
  const box = byId("notify");
  box.checked = false;
  box.disabled = true;
  box.parentElement.title = "This browser does not allow notifications from this page";
}

async function switchNotifications() {
  const box = byId("notify");
  if (!box.checked) return;
  const answer = "Notification" in window ? await Notification.requestPermission() : "denied";
  if (answer === "granted") return;
  refuseNotifications();
  box.disabled = answer === "denied";
}
