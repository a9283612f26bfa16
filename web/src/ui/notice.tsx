// One-line notices: "Copied", "Could not copy". Announced, and gone after a moment.
import { createContext, type ReactNode, useCallback, useContext, useEffect, useState } from "react";

const NoticeContext = createContext<(text: string) => void>(() => undefined);

export function useNotice(): (text: string) => void {
  return useContext(NoticeContext);
}

/** Copies text and shows a notice. */
export function useCopy(): (text: string, what: string) => void {
  const notice = useNotice();
  return useCallback(
    (text, what) => {
      navigator.clipboard.writeText(text).then(
        () => notice(`Copied ${what}.`),
        () => notice(`Could not copy ${what}: the browser refused.`),
      );
    },
    [notice],
  );
}

export function NoticeProvider({ children }: { children: ReactNode }) {
  const [notice, setNotice] = useState<{ text: string } | null>(null);
  useEffect(() => {
    if (!notice) return;
    const timer = setTimeout(() => setNotice(null), 2500);
    return () => clearTimeout(timer);
  }, [notice]);
  const say = useCallback((text: string) => setNotice({ text }), []);
  return (
    <NoticeContext.Provider value={say}>
      {children}
      <div className="notice" role="status" data-on={notice !== null || undefined}>
        {notice?.text}
      </div>
    </NoticeContext.Provider>
  );
}
