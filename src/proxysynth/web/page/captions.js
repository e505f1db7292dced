// Labels shortened to a width, such that different ones stay different: the beginning is kept if that
// tells them apart, else the end, else both, else all of it.

export function captions(labels, width) {
  const tail = (width - 1) >> 1;
  const ways = [
    (label) => `${label.slice(0, width - 1)}…`,
    (label) => `…${label.slice(1 - width)}`,
    (label) => `${label.slice(0, width - 1 - tail)}…${label.slice(-tail)}`,
    (label) => label,
  ];
  const made = new Map();
  let waiting = [...new Set(labels)];
  for (const shorten of ways) {
    const tried = waiting.map((label) => [label, label.length <= width ? label : shorten(label)]);
    const uses = new Map();
    for (const [, text] of [...tried, ...made]) uses.set(text, (uses.get(text) || 0) + 1);
    for (const [label, text] of tried) if (uses.get(text) === 1) made.set(label, text);
    waiting = waiting.filter((label) => !made.has(label));
  }
  return made;
}
