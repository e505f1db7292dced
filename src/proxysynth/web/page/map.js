// The map: every image a dot, near its neighbors. Drawn on a canvas, so that tens of
// thousands stay smooth.

import { ask, thumbnail } from "./api.js";
import { captions } from "./captions.js";
import { byId, element, loadImage } from "./dom.js";

const REACH = 14; // pixels from a dot within which it is meant
const NEAREST = 0.6;
const FARTHEST = 200;
const NAMED = 28; // characters of a label
const GAP = 3; // pixels around a label

export class EmbeddingMap {
  constructor(shared) {
    this.shared = shared;
    this.canvas = byId("canvas");
    this.context = this.canvas.getContext("2d");
    this.view = { x: 0, y: 0, zoom: 1 };
    this.points = null;
    this.colors = new Map();
    this.captions = new Map();
    this.pointed = -1;
    this.pointers = new Map();
    this.listen();
  }

  // Colors by label: hues a golden angle apart, so that labels beside each other differ.
  setLabels(labels) {
    this.captions = captions(labels.map(({ label }) => label), NAMED);
    labels.forEach(({ label }, i) => this.colors.set(label, (i * 137.508 + 228) % 360));
  }

  async show() {
    this.fit();
    if (this.points || this.asking) return this.draw();
    this.asking = true;
    byId("map-note").textContent = "Computing the map …";
    try {
      this.setPoints(await ask("api/map"));
    } catch (error) {
      byId("map-note").textContent = "";
      this.shared.showMessage(error.message);
    } finally {
      this.asking = false;
    }
  }

  setPoints(points) {
    this.points = points;
    this.groups = grouped(points);
    this.pointed = -1;
    const shown = points.number.length.toLocaleString("en");
    const all = points.items.toLocaleString("en");
    byId("map-note").textContent = points.number.length < points.items
      ? `${shown} of ${all} images, evenly sampled; ${points.method}`
      : `${shown} images; ${points.method}`;
    const marks = [];
    if (points.seen.includes(false)) marks.push(["ring", "unseen class"]);
    if (points.seen.includes(true)) marks.push(["dot", "seen in training"]);
    byId("legend").replaceChildren(
      ...marks.map(([mark, text]) => element("span", "", element("span", mark), text)),
    );
    this.all();
  }

  listen() {
    const canvas = this.canvas;
    new ResizeObserver(() => { this.fit(); this.draw(); }).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.0016), ...this.at(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.lift(event));
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) this.pointMiddle(); });
    canvas.addEventListener("blur", () => this.point(-1));
    byId("zoom-in").addEventListener("click", () => this.zoom(1.6));
    byId("zoom-out").addEventListener("click", () => this.zoom(1 / 1.6));
    byId("zoom-all").addEventListener("click", () => this.all());
    byId("map-label").addEventListener("input", () => this.draw());
  }

  fit() {
    const sharp = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * sharp);
    this.canvas.height = Math.round(this.height * sharp);
    this.context.setTransform(sharp, 0, 0, sharp, 0, 0);
  }

  // Where a point of the space is on the canvas.
  scale() {
    return (Math.min(this.width, this.height) / 2.2) * this.view.zoom;
  }

  positionOf(i) {
    return this.toCanvas(this.points.x[i], this.points.y[i]);
  }

  toCanvas(x, y) {
    const s = this.scale();
    const wide = Math.max(1, Math.min(2, this.width / this.height));
    const high = Math.max(1, Math.min(1.5, this.height / this.width));
    return [
      this.width / 2 + (x * wide - this.view.x) * s,
      this.height / 2 - (y * high - this.view.y) * s,
    ];
  }

  draw() {
    if (this.waiting || !this.points || !this.width) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const { context, points } = this;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const wanted = byId("map-label").value.trim();
    const known = wanted && this.colors.has(wanted);
    const radius = Math.min(7, (points.number.length > 4000 ? 2 : 3.4) * this.view.zoom ** 0.25);
    context.clearRect(0, 0, this.width, this.height);
    for (const front of known ? [false, true] : [true]) {
      for (let i = 0; i < points.number.length; i++) {
        const meant = !known || points.labels[points.label[i]] === wanted;
        if (known && meant !== front) continue;
        const [x, y] = this.positionOf(i);
        if (x < -9 || y < -9 || x > this.width + 9 || y > this.height + 9) continue;
        context.globalAlpha = meant ? 0.85 : 0.1;
        this.dot(x, y, known && meant ? radius * 1.5 : radius, i, dark);
      }
    }
    context.globalAlpha = 1;
    this.drawLabels(dark, known ? wanted : null);
    if (this.pointed >= 0) {
      const [x, y] = this.positionOf(this.pointed);
      context.strokeStyle = dark ? "#ffffff" : "#1a1d23";
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, radius + 4, 0, 7);
      context.stroke();
    }
    if (this.canvas.matches(":focus-visible")) this.drawCrosshair(dark);
  }

  dot(x, y, radius, i, dark) {
    const label = this.points.labels[this.points.label[i]];
    const hue = this.colors.get(label);
    const color = hue === undefined
      ? (dark ? "#9aa2af" : "#626a76")
      : `hsl(${hue} ${dark ? "72% 68%" : "66% 46%"})`;
    const { context } = this;
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    if (this.points.seen[i] === false) {
      context.lineWidth = Math.max(1.4, radius * 0.5);
      context.strokeStyle = color;
      context.stroke();
    } else {
      context.fillStyle = color;
      context.fill();
    }
  }

  // Labels stand where most of their images lie. Where two would overlap, the one with fewer
  // images is left out until there is room: zooming in shows it.
  drawLabels(dark, only) {
    const { context } = this;
    const size = this.width < 500 ? 10.5 : 12;
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.lineJoin = "round";
    context.lineWidth = 4;
    const taken = [];
    for (const { label, x, y } of this.groups) {
      if (only && label !== only) continue;
      const [middle, bottom] = this.toCanvas(x, y);
      if (middle < 0 || bottom < 0 || middle > this.width || bottom > this.height) continue;
      const name = this.captions.get(label) ?? label;
      const half = context.measureText(name).width / 2 + GAP;
      if (!only && 2 * half > this.width) continue;
      const at = Math.max(half, Math.min(this.width - half, middle));
      const base = Math.max(size + GAP, bottom - 9);
      const box = [at - half, base - size - GAP, at + half, base + GAP];
      if (taken.some((other) => overlap(box, other))) continue;
      taken.push(box);
      context.strokeStyle = dark ? "rgb(20 22 26 / 85%)" : "rgb(255 255 255 / 88%)";
      context.strokeText(name, at, base);
      context.fillStyle = `hsl(${this.colors.get(label)} ${dark ? "80% 78%" : "70% 32%"})`;
      context.fillText(name, at, base);
    }
  }

  drawCrosshair(dark) {
    const { context } = this;
    const [x, y] = [this.width / 2, this.height / 2];
    context.strokeStyle = dark ? "#97a5ff" : "#3f51c7";
    context.lineWidth = 1.5;
    context.beginPath();
    for (const [a, b] of [[-12, -5], [5, 12]]) {
      context.moveTo(x + a, y); context.lineTo(x + b, y);
      context.moveTo(x, y + a); context.lineTo(x, y + b);
    }
    context.stroke();
  }

  all() {
    this.view = { x: 0, y: 0, zoom: 1 };
    this.point(-1);
    this.draw();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.scale();
    this.view.zoom = Math.max(NEAREST, Math.min(FARTHEST, this.view.zoom * factor));
    const shift = 1 / before - 1 / this.scale();
    this.view.x += (x - this.width / 2) * shift;
    this.view.y -= (y - this.height / 2) * shift;
    this.point(-1);
    this.draw();
  }

  pan(x, y) {
    this.view.x -= x / this.scale();
    this.view.y += y / this.scale();
    this.draw();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  nearest(x, y, reach) {
    let best = -1;
    let least = reach * reach;
    for (let i = 0; this.points && i < this.points.number.length; i++) {
      const [px, py] = this.positionOf(i);
      const far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  point(i) {
    const tip = byId("tip");
    this.canvas.classList.toggle("pointing", i >= 0);
    if (i === this.pointed && i < 0) return;
    this.pointed = i;
    tip.hidden = i < 0;
    if (i >= 0) {
      const [x, y] = this.positionOf(i);
      const { number, label, labels, seen, generation } = this.points;
      const image = tip.querySelector("img");
      const url = thumbnail(number[i], generation);
      if (!image.src.endsWith(url)) loadImage(image, url);
      const caption = [label[i] < 0 ? `image ${number[i]}` : labels[label[i]]];
      if (seen[i] === false) caption.push(element("em", "", "unseen class"));
      tip.querySelector("figcaption").replaceChildren(...caption);
      const left = x + 166 > this.width ? x - 164 : x + 16;
      const top = Math.max(8, Math.min(this.height - 205, y - 90));
      tip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
    }
    this.draw();
  }

  pointMiddle() {
    if (this.points) this.point(this.nearest(this.width / 2, this.height / 2, 1e4));
  }

  search(i) {
    if (i >= 0) this.shared.go(`#item/${this.points.number[i]}/${this.points.generation}`);
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.at(event));
    this.moved = 0;
  }

  move(event) {
    const [x, y] = this.at(event);
    const last = this.pointers.get(event.pointerId);
    if (!last) return this.point(this.nearest(x, y, REACH));
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const [ox, oy] = others[0][1];
      const factor = Math.hypot(x - ox, y - oy) / Math.max(1, Math.hypot(last[0] - ox, last[1] - oy));
      this.zoom(factor, (x + ox) / 2, (y + oy) / 2);
      this.moved += 9;
    } else {
      this.moved += Math.hypot(x - last[0], y - last[1]);
      if (this.moved > 4) {
        this.canvas.classList.add("dragging");
        this.point(-1);
        this.pan(x - last[0], y - last[1]);
      }
    }
    this.pointers.set(event.pointerId, [x, y]);
  }

  lift(event) {
    const had = this.pointers.delete(event.pointerId);
    this.canvas.classList.remove("dragging");
    if (!had || event.type === "pointercancel" || this.moved > 4) return;
    const i = this.nearest(...this.at(event), event.pointerType === "touch" ? 2 * REACH : REACH);
    // A finger cannot hover: its first touch shows the image, the second searches.
    if (event.pointerType === "touch" && i !== this.touched) {
      this.touched = i;
      return this.point(i);
    }
    this.touched = -1;
    this.search(i);
  }

  key(event) {
    const step = 60;
    const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) this.pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "0") this.all();
    else if (event.key === "Enter") return this.search(this.pointed);
    else return;
    event.preventDefault();
    this.pointMiddle();
  }
}

// For each label the place in the middle of its images, by each axis; the most frequent first.
function grouped({ label, labels, x, y }) {
  const groups = labels.map((name) => ({ name, members: [] }));
  label.forEach((code, i) => { if (code >= 0) groups[code].members.push(i); });
  const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  return groups
    .filter(({ members }) => members.length)
    .sort((a, b) => b.members.length - a.members.length)
    .map(({ name, members }) => ({
      label: name, x: median(members.map((i) => x[i])), y: median(members.map((i) => y[i])),
    }));
}

function overlap([left, top, right, bottom], [otherLeft, otherTop, otherRight, otherBottom]) {
  return left < otherRight && otherLeft < right && top < otherBottom && otherTop < bottom;
}
