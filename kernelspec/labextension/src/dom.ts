// Elements, and changes to them that touch the page only when something is different.

type Attributes = Record<string, string>;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function say(node: HTMLElement, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function set(node: HTMLElement, name: string, value: string): void {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function show(node: HTMLElement, shown: boolean): void {
  if (node.hidden === shown) node.hidden = !shown;
}

/** A button that stays where the keyboard is when it cannot be used, and then says why. */
export function enable(button: HTMLElement, why: string): void {
  set(button, 'aria-disabled', String(why !== ''));
  set(button, 'title', why);
}

/** As many children as there are items, those that are there used again. */
export function list<T, E extends HTMLElement>(
  parent: HTMLElement,
  items: T[],
  make: () => E,
  fill: (child: E, item: T) => void,
): void {
  while (parent.childElementCount > items.length) parent.lastElementChild?.remove();
  items.forEach((item, i) => {
    const child = (parent.children[i] as E | undefined) ?? parent.appendChild(make());
    fill(child, item);
  });
}
