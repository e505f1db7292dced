// The interactive figure of concepts.md: two classes on the unit circle, mixed with the coefficient
// of a slider. No library; the slider and the button are the browser's own, so the keyboard works.
(() => {
  "use strict";
  const host = document.getElementById("synthesis-figure");
  if (!host) return;

  const SCALE = 12; // of the Norm-softmax whose probabilities are shown
  const ALPHA = 0.4;
  const CENTER = [300, 290];
  const RADIUS = 240;
  const unit = (degrees) => {
    const angle = (degrees * Math.PI) / 180;
    return [Math.cos(angle), Math.sin(angle)];
  };
  const dot = (u, v) => u[0] * v[0] + u[1] * v[1];
  const mix = (lam, u, v) => [lam * u[0] + (1 - lam) * v[0], lam * u[1] + (1 - lam) * v[1]];
  const normalize = (u) => u.map((value) => value / Math.hypot(...u));
  const at = (u, r = 1) => [CENTER[0] + r * RADIUS * u[0], CENTER[1] - r * RADIUS * u[1]];

  const A = { proxy: unit(34), parent: unit(44), others: [unit(39), unit(29), unit(22), unit(16)] };
  const B = { proxy: unit(146), parent: unit(134), others: [unit(139), unit(151), unit(158), unit(164)] };

  function probabilities(x, proxies) {
    const weights = proxies.map((p) => Math.exp(SCALE * dot(x, p)));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return weights.map((weight) => weight / total);
  }

  // A draw of Beta(a, a) for a < 1, by Jöhnk's method.
  function beta(a) {
    for (;;) {
      const u = Math.random() ** (1 / a);
      const v = Math.random() ** (1 / a);
      if (u + v > 0 && u + v <= 1) return u / (u + v);
    }
  }

  const circle = (u, kind, size, r) => {
    const [x, y] = at(u, r);
    return `<circle class="${kind}" cx="${x}" cy="${y}" r="${size}"/>`;
  };
  const diamond = (u, kind, size = 11) => {
    const [x, y] = at(u);
    return `<path class="${kind}" d="M${x} ${y - size}L${x + size} ${y}L${x} ${y + size}L${x - size} ${y}Z"/>`;
  };
  const line = (from, to, kind) =>
    `<line class="line ${kind}" x1="${from[0]}" y1="${from[1]}" x2="${to[0]}" y2="${to[1]}"/>`;
  const label = (u, r, text) => {
    const [x, y] = at(u, r);
    return `<text x="${x}" y="${y}" text-anchor="middle" dominant-baseline="central">${text}</text>`;
  };

  const NAMES = { a: "class A", b: "class B", s: "synthetic" };

  function drawing(lam) {
    const inner = mix(lam, A.parent, B.parent);
    const innerProxy = mix(lam, A.proxy, B.proxy);
    const x = normalize(inner);
    const p = normalize(innerProxy);
    const [left, right] = [at([-1, 0]), at([1, 0])];
    const ends = lam < 0.12 || lam > 0.88; // the names of the parents are there already
    return [
      `<path class="line" d="M${left[0]} ${left[1]}A${RADIUS} ${RADIUS} 0 0 1 ${right[0]} ${right[1]}"/>`,
      line(at(A.parent), at(B.parent), "dashed"),
      line(at(A.proxy), at(B.proxy), "dashed"),
      line(CENTER, at(x), ""),
      ...A.others.map((u) => circle(u, "a", 5)),
      ...B.others.map((u) => circle(u, "b", 5)),
      circle(A.parent, "a", 7), circle(B.parent, "b", 7),
      diamond(A.proxy, "a"), diamond(B.proxy, "b"),
      circle(normalize(inner), "s", 3, Math.hypot(...inner)),
      circle(normalize(innerProxy), "s", 3, Math.hypot(...innerProxy)),
      diamond(p, "s", 13), circle(x, "s", 8),
      label(A.parent, 1.09, "x"), label(B.parent, 1.09, "x′"),
      label(A.proxy, 1.1, "p"), label(B.proxy, 1.1, "p′"),
      label(unit(16), 0.72, NAMES.a), label(unit(164), 0.72, NAMES.b),
      ends ? "" : label(x, 1.11, "x̃, p̃"),
    ].join("");
  }

  const bars = (title, kinds) =>
    `<div><p>${title}</p>${kinds
      .map(
        (kind) =>
          `<div class="row"><span>${NAMES[kind]}</span><span class="track"><span class="${kind}"></span></span>` +
          `<span class="number"></span></div>`,
      )
      .join("")}</div>`;

  host.innerHTML =
    `<svg viewBox="0 0 600 300" role="img" aria-label="Two classes on a circle and their mixture"></svg>
     <div class="controls">
       <label>λ <input type="range" min="0" max="1" step="0.01" value="0.5"
         aria-label="λ, the share of class A in the mixture"> <output></output></label>
       <button type="button">Draw λ from Beta(0.4, 0.4)</button>
     </div>
     <p>● embeddings, ◆ proxies. Class probabilities of the mixture x̃:</p>
     <div class="bars">${bars("without the synthetic class", ["a", "b"])}${bars("with it", ["a", "b", "s"])}</div>
     <p class="status" role="status"></p>`;
  const svg = host.querySelector("svg");
  const slider = host.querySelector("input");
  const shown = host.querySelector("output");
  const status = host.querySelector(".status");
  const rows = [...host.querySelectorAll(".row")];

  function update() {
    const lam = Number(slider.value);
    const x = normalize(mix(lam, A.parent, B.parent));
    const synthetic = normalize(mix(lam, A.proxy, B.proxy));
    const plain = probabilities(x, [A.proxy, B.proxy]);
    const more = probabilities(x, [A.proxy, B.proxy, synthetic]);
    svg.innerHTML = drawing(lam);
    shown.textContent = lam.toFixed(2);
    [...plain, ...more].forEach((value, i) => {
      const percent = `${(100 * value).toFixed(0)}%`;
      rows[i].querySelector(".track span").style.width = percent.replace(" ", "");
      rows[i].querySelector(".number").textContent = percent;
    });
    const words = (values, kinds) =>
      values.map((value, i) => `${NAMES[kinds[i]]} ${(100 * value).toFixed(0)} percent`).join(", ");
    status.textContent = `Without: ${words(plain, "ab")}. With: ${words(more, "abs")}.`;
  }

  slider.addEventListener("input", update);
  host.querySelector("button").addEventListener("click", () => {
    slider.value = beta(ALPHA).toFixed(2);
    update();
  });
  update();
})();
