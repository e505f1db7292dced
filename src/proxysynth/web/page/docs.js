// The API's own description, /openapi.json, as a page for people.

const made = (name, ...children) => {
  const element = document.createElement(name);
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
};

const told = await (await fetch("/openapi.json")).json();

function resolve(schema) {
  if (!schema?.$ref) return schema ?? {};
  return schema.$ref.slice(2).split("/").reduce((at, key) => at[key], told);
}

function kind(schema) {
  const known = resolve(schema);
  if (known.anyOf) return known.anyOf.map(kind).filter((word) => word !== "null").join(" or ");
  if (known.type === "array") return `list of ${kind(known.items)}`;
  if (known.format === "binary" || known.contentMediaType) return "file";
  return known.type ?? "object";
}

function bounds(schema) {
  const known = resolve(schema);
  const inner = (known.anyOf ?? [known]).map(resolve).find((one) => one.type !== "null") ?? {};
  const words = [];
  if (inner.minimum !== undefined) words.push(`from ${inner.minimum}`);
  if (inner.maximum !== undefined) words.push(`to ${inner.maximum}`);
  if (known.default !== undefined && known.default !== null) words.push(`${known.default} unless given`);
  return words.join(" ");
}

function row(name, place, schema, required, words) {
  const known = resolve(schema);
  const about = [words ?? known.description, bounds(schema)].filter(Boolean).join("; ");
  return made("tr", made("td", made("code", name)), made("td", place), made("td", kind(schema)),
    made("td", required ? "required" : ""), made("td", about));
}

function article(path, method, route) {
  const rows = (route.parameters ?? []).map((parameter) =>
    row(parameter.name, parameter.in, parameter.schema, parameter.required, parameter.description));
  for (const [type, { schema }] of Object.entries(route.requestBody?.content ?? {})) {
    const known = resolve(schema);
    for (const [name, field] of Object.entries(known.properties ?? {})) {
      const place = type.startsWith("multipart") ? "form" : "JSON";
      rows.push(row(name, place, field, known.required?.includes(name)));
    }
  }
  const head = made("tr", ...["Name", "In", "Kind", "", ""].map((word) => made("th", word)));
  const parts = [made("h2", made("b", method.toUpperCase()), path), made("p", (route.description ?? route.summary).replace(/\n\n/g, " "))];
  if (rows.length) {
    const wide = made("div", made("table", made("thead", head), made("tbody", ...rows)));
    wide.className = "wide";
    parts.push(wide);
  }
  const answers = Object.entries(route.responses).map(([status, { description }]) => `${status}  ${description}`);
  parts.push(made("pre", answers.join("\n")));
  return made("article", ...parts);
}

const articles = Object.entries(told.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, route]) => article(path, method, route)));
document.getElementById("routes").replaceChildren(...articles);
