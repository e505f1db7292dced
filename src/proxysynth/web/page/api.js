// Requests to the service. A response that is not a success becomes an Error with its message.

export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service is not responding. Is it still running?");
  }
  const content = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(sentence(content.error || `The service returned status ${response.status}`));
    error.status = response.status;
    throw error;
  }
  return content;
}

export function searchPicture(file, settings, signal) {
  const form = new FormData();
  form.append("file", file, "picture");
  for (const [name, value] of Object.entries(wanted(settings))) form.append(name, value);
  return ask("api/search", { method: "POST", body: form, signal });
}

export function searchItem(item, settings, signal) {
  const query = new URLSearchParams({ ...wanted(settings), generation: item.generation });
  return ask(`api/items/${item.number}/search?${query}`, { signal });
}

export function browse(settings, signal) {
  return ask(`api/items?${new URLSearchParams(wanted(settings))}`, { signal });
}

export const thumbnail = (number, generation) => `api/items/${number}/thumbnail?generation=${generation}`;
export const picture = (number, generation) => `api/items/${number}/picture?generation=${generation}`;

function wanted({ k, label }) {
  return label ? { k, label } : { k };
}

function sentence(text) {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
