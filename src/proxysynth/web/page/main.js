// The views and what they share: tabs, messages, facts about the index. The fragment of the URL
// (#map, #item/12) names a view and its query, so that reloading, going back and sharing a link work.

import { ask } from "./api.js";
import { byId } from "./dom.js";
import { Search } from "./search.js";
import { EmbeddingMap } from "./map.js";

const tabs = [...document.querySelectorAll('[role="tab"]')];
const views = tabs.map((tab) => byId(tab.getAttribute("aria-controls")));

const shared = {
  facts: null,
  showMessage(text) {
    byId("message").textContent = text || "";
    byId("message").hidden = !text;
  },
  // The index was replaced: numbers of the old one are no longer valid.
  reloadPage() {
    sessionStorage.setItem("message", "The index has been replaced: choose an image again.");
    location.replace("#search");
    location.reload();
  },
  go(address) {
    if (location.hash === address) route();
    else location.hash = address;
  },
};
const search = new Search(shared);
const map = new EmbeddingMap(shared);

function show(name) {
  tabs.forEach((tab, i) => {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    views[i].hidden = !chosen;
  });
  shared.showMessage("");
  if (name === "map") map.show();
  if (name === "report") showReport();
}

// The parts of the address; `#/` is accepted as well.
function address() {
  return location.hash.replace(/^#\/?/, "").split("/");
}

function route() {
  const [name, number, generation] = address();
  if (name === "content") return undefined; // the link that skips the head: a place, not a view
  if (name === "map" || name === "report") return show(name);
  show("search");
  if (name === "item" && /^\d+$/.test(number)) {
    return search.fromItem({ number: Number(number), generation });
  }
  if (name === "picture" && search.lastFile) return search.fromPicture();
  search.start();
  if (name === "picture") {
    history.replaceState(null, "", "#search");
    shared.showMessage("The image was lost when the page reloaded. Please choose it again.");
  }
  if (name === "item") shared.showMessage("This link does not point to an image.");
  return undefined;
}

function showReport() {
  const frame = byId("report-frame");
  const none = byId("report-none");
  if (shared.facts === null) return;
  none.hidden = shared.facts.report;
  frame.hidden = !shared.facts.report;
  none.textContent = "This index was built without a run, or its run has no report.";
  if (shared.facts.report && !frame.src) frame.src = "report";
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => shared.go(`#${tab.id.slice(4)}`));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tabs[(i + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
});
addEventListener("hashchange", route);

async function begin() {
  try {
    const facts = await ask("api/health");
    shared.facts = facts;
    const classes = facts.labels ? ` · ${facts.labels.toLocaleString("en")} labels` : "";
    byId("facts").textContent = `${facts.items.toLocaleString("en")} images${classes}`;
    byId("foot-model").textContent = `${facts.index} · ${facts.model}`;
    document.title = `${facts.index} · Proxysynth search`;
    const response = await ask("api/labels");
    byId("labels").replaceChildren(
      ...response.labels.map(({ label, count }) => new Option(`${count}`, label)),
    );
    map.setLabels(response.labels);
    search.setLabels(response.labels);
  } catch (error) {
    shared.showMessage(error.message);
  }
  if (address()[0] === "content") location.replace("#search");
  else route();
  const message = sessionStorage.getItem("message"); // left by the page before it was loaded again
  if (message) shared.showMessage(message);
  sessionStorage.removeItem("message");
}
begin();
