// Context menus: opened by the right button, by Shift+F10 or by a menu button; arrow keys, Enter, Escape.
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useRef, useState } from "react";

export type MenuItem =
  | {
      label: string;
      hint?: string | undefined;
      run: () => void;
      disabled?: boolean;
      /** Of a switch: whether it is on. */
      checked?: boolean;
    }
  | { heading: string }
  | "separator";

interface OpenMenu {
  x: number;
  y: number;
  items: MenuItem[];
  /** Gets the focus back. */
  from: Element | null;
}

type Open = (at: { x: number; y: number }, items: MenuItem[]) => void;

const MenuContext = createContext<Open | null>(null);

export function useMenu(): Open {
  const open = useContext(MenuContext);
  if (!open) throw new Error("useMenu outside of MenuProvider");
  return open;
}

/** Position of a menu that was opened by the keyboard. */
export function below(element: Element): { x: number; y: number } {
  const box = element.getBoundingClientRect();
  return { x: box.left + 12, y: Math.min(box.bottom, window.innerHeight - 40) };
}

export function isMenuKey(event: { key: string; shiftKey: boolean }): boolean {
  return event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey);
}

export function MenuProvider({ children }: { children: ReactNode }) {
  const [menu, setMenu] = useState<OpenMenu | null>(null);
  const open = useCallback<Open>((at, items) => setMenu({ ...at, items, from: document.activeElement }), []);
  const close = useCallback(() => {
    setMenu((old) => {
      if (old?.from instanceof HTMLElement || old?.from instanceof SVGElement) old.from.focus({ preventScroll: true });
      return null;
    });
  }, []);
  return (
    <MenuContext.Provider value={open}>
      {children}
      {menu && <Menu menu={menu} close={close} />}
    </MenuContext.Provider>
  );
}

function Menu({ menu, close }: { menu: OpenMenu; close: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const keys = useMemo(() => numbered(menu.items), [menu.items]);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const { width, height } = element.getBoundingClientRect();
    element.style.left = `${Math.max(4, Math.min(menu.x, window.innerWidth - width - 4))}px`;
    element.style.top = `${Math.max(4, Math.min(menu.y, window.innerHeight - height - 4))}px`;
    // Where nothing can be chosen the menu itself has the focus, so that keys close it.
    (element.querySelector<HTMLElement>("[role^=menuitem]:not(:disabled)") ?? element).focus();
    const outside = (event: Event) => {
      if (event.target instanceof Node && !element.contains(event.target)) close();
    };
    window.addEventListener("pointerdown", outside, true);
    window.addEventListener("blur", close);
    window.addEventListener("resize", close);
    return () => {
      window.removeEventListener("pointerdown", outside, true);
      window.removeEventListener("blur", close);
      window.removeEventListener("resize", close);
    };
  }, [menu, close]);

  const move = (step: number | "first" | "last") => {
    const items = [...(box.current?.querySelectorAll<HTMLElement>("[role^=menuitem]:not(:disabled)") ?? [])];
    const now = items.indexOf(document.activeElement as HTMLElement);
    const next = step === "first" ? 0 : step === "last" ? items.length - 1 : (now + step + items.length) % items.length;
    items[next]?.focus();
  };

  return (
    <div
      ref={box}
      className="menu"
      role="menu"
      tabIndex={-1}
      aria-label="Actions"
      onContextMenu={(event) => event.preventDefault()}
      onKeyDown={(event) => {
        event.stopPropagation();
        if (event.key === "Escape" || event.key === "Tab") close();
        else if (event.key === "ArrowDown") move(1);
        else if (event.key === "ArrowUp") move(-1);
        else if (event.key === "Home") move("first");
        else if (event.key === "End") move("last");
        else return;
        event.preventDefault();
      }}
    >
      {keys.map(({ key, item }) =>
        item === "separator" ? (
          <hr key={key} />
        ) : "heading" in item ? (
          <div key={key} className="menu-heading" role="presentation">
            {item.heading}
          </div>
        ) : (
          <button
            key={key}
            type="button"
            {...(item.checked === undefined
              ? { role: "menuitem" }
              : { role: "menuitemcheckbox", "aria-checked": item.checked })}
            tabIndex={-1}
            disabled={item.disabled}
            onClick={() => {
              close();
              item.run();
            }}
          >
            <span>{item.label}</span>
            {item.hint && <kbd>{item.hint}</kbd>}
            {item.checked && <span aria-hidden="true">✓</span>}
          </button>
        ),
      )}
    </div>
  );
}

function numbered(items: MenuItem[]): { key: number; item: MenuItem }[] {
  return items.map((item, key) => ({ key, item }));
}
