// The search view: a query image and its neighbors.

import { browse, picture, searchItem, searchPicture, thumbnail } from "./api.js";
import { captions } from "./captions.js";
import { byId, element, loadImage } from "./dom.js";

const LARGEST = 20 * 2 ** 20; // bytes of an upload
const WIDTH = 40; // characters of a name on a card

export class Search {
  constructor(shared) {
    this.shared = shared;
    this.file = null; // the query: a file, an item of the index, or neither
    this.item = null;
    this.lastFile = null;
    this.hits = [];
    this.running = null;
    this.captions = new Map();
    this.labels = [];
    this.listen();
  }

  setLabels(labels) {
    this.labels = labels.map(({ label }) => label);
    this.captions = captions(this.labels, WIDTH);
  }

  listen() {
    const drop = byId("drop");
    byId("file").addEventListener("change", (event) => {
      if (event.target.files[0]) this.fromFile(event.target.files[0]);
      event.target.value = "";
    });
    // The whole window takes a drop: an image that misses the box must not replace the page.
    addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) drop.classList.remove("over");
    });
    addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      if (event.dataTransfer.files[0]) this.fromFile(event.dataTransfer.files[0]);
    });
    addEventListener("paste", (event) => {
      const file = [...event.clipboardData.files][0];
      if (file) this.fromFile(file);
    });
    byId("clear").addEventListener("click", () => this.shared.go("#search"));
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("threshold").addEventListener("input", () => this.applyThreshold());
    byId("count").addEventListener("change", () => this.again());
    byId("label").addEventListener("change", () => this.again());
    byId("label").addEventListener("input", () => {
      byId("label-clear").hidden = !byId("label").value;
      if (this.labels.includes(this.settings().label)) this.again(); // typed to the end, or chosen
    });
    byId("label-clear").addEventListener("click", () => {
      byId("label").value = "";
      byId("label-clear").hidden = true;
      byId("label").focus();
      this.again();
    });
    byId("results").addEventListener("keydown", (event) => this.moveFocus(event));
  }

  settings() {
    const typed = byId("label").value.trim();
    const alike = this.labels.find((label) => label.toLowerCase() === typed.toLowerCase());
    const label = this.labels.includes(typed) ? typed : (alike ?? typed);
    return { k: Number(byId("count").value), label };
  }

  start() {
    this.file = this.item = null;
    this.again();
  }

  fromFile(file) {
    if (file.size > LARGEST) {
      this.shared.showMessage(`${file.name || "The image"} is too large: the limit is 20 MB.`);
      return;
    }
    this.lastFile = file;
    this.shared.go("#picture");
  }

  // The image given last, also when the browser's way back leads to it.
  fromPicture() {
    this.file = this.lastFile;
    this.item = null;
    this.again();
  }

  fromItem(item) {
    this.file = null;
    this.item = item;
    this.again();
  }

  async again() {
    this.running?.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    const settings = this.settings();
    this.shared.showMessage("");
    this.showQuery();
    byId("drop").classList.add("busy");
    try {
      const found = this.file
        ? await searchPicture(this.file, settings, signal)
        : this.item
          ? await searchItem(this.item, settings, signal)
          : await browse(settings, signal);
      this.showFound(found, settings);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 409) return this.shared.reloadPage();
      this.shared.showMessage(error.message);
      this.hits = [];
      byId("results").replaceChildren();
      byId("nothing").hidden = true;
      byId("found-title").textContent = "No results";
      byId("found-note").textContent = "";
    } finally {
      if (this.running?.signal === signal) byId("drop").classList.remove("busy");
    }
  }

  showQuery() {
    const asked = Boolean(this.file || this.item);
    const image = byId("query-picture");
    byId("drop").classList.toggle("asked", asked);
    byId("clear").hidden = image.hidden = !asked;
    byId("query-note").hidden = !asked;
    byId("query-hint").hidden = asked;
    if (this.shownUrl) URL.revokeObjectURL(this.shownUrl);
    this.shownUrl = null;
    if (!asked) return image.removeAttribute("src");
    image.onerror = () => { image.hidden = true; };
    if (this.file) {
      this.shownUrl = URL.createObjectURL(this.file);
      loadImage(image, this.shownUrl);
      image.alt = "The query image";
      byId("query-note").textContent = this.file.name || "Pasted image";
    } else {
      this.item.generation ||= this.shared.facts?.generation;
      loadImage(image, thumbnail(this.item.number, this.item.generation));
      image.alt = "The query image, from the index";
      byId("query-note").textContent = "From the index";
    }
  }

  showFound(found, settings) {
    this.hits = found.hits;
    this.generation = found.generation;
    this.asked = Boolean(this.file || this.item);
    const of = settings.label ? ` labeled ${settings.label}` : "";
    byId("found-title").textContent = this.asked ? `Nearest images${of}` : `Images in the index${of}`;
    if (found.query) {
      const link = element("a", "", found.query.path);
      link.href = picture(found.query.number, found.generation);
      link.target = "_blank";
      link.rel = "noopener";
      const prefix = found.query.label === null ? [] : [`${found.query.label} · `];
      byId("query-note").replaceChildren(...prefix, link);
    }
    this.fitSlider();
    this.draw(found.hits, settings.label);
    this.applyThreshold();
  }

  // Similarities often lie in a narrow band: the slider spans those of the results.
  fitSlider() {
    const slider = byId("threshold");
    const lowest = this.hits.length && this.asked ? Math.min(...this.hits.map((hit) => hit.similarity)) : -1;
    slider.disabled = !this.asked;
    const least = Math.max(-1, Math.floor(lowest * 50) / 50);
    const value = Number(slider.value);
    const any = value <= Number(slider.min) || !this.asked;
    slider.min = String(least);
    slider.value = String(any ? least : Math.max(least, value));
  }

  draw(hits, label) {
    byId("results").replaceChildren(...hits.map((hit, i) => this.card(hit, i)));
    byId("nothing").hidden = hits.length > 0;
    byId("nothing").textContent = label
      ? `No other image is labeled ${label}.`
      : "There is no other image in the index.";
  }

  card(hit, i) {
    const image = element("img", "");
    image.loading = i < 24 ? "eager" : "lazy";
    image.alt = "";
    image.onerror = () => image.classList.add("broken");
    loadImage(image, thumbnail(hit.number, this.generation));
    const shot = element("span", "shot", image);
    if (hit.same) shot.append(badge("same", "likely match", `its similarity reaches the model's same-class threshold (${this.shared.facts?.threshold_about})`));
    if (hit.seen === false) shot.append(badge("", "unseen", "of a class that was not used in training"));
    const name = hit.label ?? hit.path.split("/").pop();
    const shown = element("span", "name", ...breakable(this.captions.get(hit.label) ?? name));
    const text = element("span", "card-text", shown);
    let description = `${name}, ${hit.path}`;
    if (hit.similarity !== undefined) {
      const cosine = hit.similarity.toFixed(3);
      const fill = element("i", "");
      fill.style.width = `${Math.max(0, Math.min(1, hit.similarity)) * 100}%`;
      text.append(element("span", "closeness", cosine, element("span", "bar", fill)));
      description += `, similarity ${cosine}${hit.same ? ", likely the same class" : ""}`;
    }
    if (hit.seen === false) description += ", of a class unseen in training";
    const card = element("button", "card", shot, text);
    card.type = "button";
    card.title = hit.seen === false ? `${hit.path}: of a class unseen in training` : hit.path;
    card.setAttribute("aria-label", `${description}. Search from this image`);
    card.addEventListener("click", () => {
      this.shared.go(`#item/${hit.number}/${this.generation}`);
      scrollTo({ top: 0 });
    });
    return element("li", "", card);
  }

  applyThreshold() {
    const slider = byId("threshold");
    const least = Number(slider.value);
    const any = least <= Number(slider.min);
    byId("threshold-shown").textContent = any ? "any" : least.toFixed(2);
    slider.setAttribute("aria-valuetext", any ? "any" : least.toFixed(2));
    let shown = 0;
    [...byId("results").children].forEach((item, i) => {
      const hit = this.hits[i];
      const visible = any || !this.asked || hit.similarity >= least;
      item.hidden = !visible;
      shown += visible ? 1 : 0;
    });
    const all = this.hits.length;
    byId("found-note").textContent = !this.asked
      ? all ? "Choose one to find similar images" : ""
      : shown === all ? `the ${all} nearest` : `${shown} of ${all} reach the minimum similarity`;
    if (all && this.asked) {
      byId("nothing").hidden = shown > 0;
      byId("nothing").textContent = "No results above the minimum similarity. Try lowering it.";
    }
  }

  // Arrows go from card to card, up and down by the rows that are seen.
  moveFocus(event) {
    const cards = [...byId("results").querySelectorAll("li:not([hidden]) .card")];
    const at = cards.indexOf(document.activeElement);
    if (at < 0) return;
    const row = cards.filter((card) => card.offsetTop === cards[0].offsetTop).length || 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row };
    let next = steps[event.key] === undefined ? null : at + steps[event.key];
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = cards.length - 1;
    if (next === null) return;
    event.preventDefault();
    cards[Math.max(0, Math.min(cards.length - 1, next))].focus();
  }
}

// Long names break where their words end.
function breakable(name) {
  return name.split(/(?<=[_./-])/).flatMap((part) => [part, document.createElement("wbr")]);
}

function badge(kind, text, title) {
  const made = element("span", `badge ${kind}`.trim(), text);
  made.title = title;
  return made;
}
