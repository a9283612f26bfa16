//! Questions to begin with, as the page offers them and the guide explains them.

use tracehound_api::sql::SqlExample;

/// What each asks, the same in SQL, and how many recordings it needs.
const EXAMPLES: [(&str, &str, u32); 8] = [
    (
        "Which functions hold most at the peak?",
        "SELECT function, module, flat_bytes, flat_count
FROM functions('peak')
ORDER BY flat_bytes DESC LIMIT 20",
        1,
    ),
    (
        "Which sizes are asked for most?",
        "SELECT size, count(*) AS blocks, sum(size) AS bytes, count(DISTINCT site) AS sites
FROM allocations
GROUP BY size ORDER BY bytes DESC LIMIT 20",
        1,
    ),
    (
        "Which blocks lived longest, and who freed them?",
        "SELECT f.row, f.size, f.lifetime_ns, k.function AS freed_by
FROM frees f JOIN stacks k ON k.recording = f.recording AND k.stack = f.stack AND k.depth = 0
ORDER BY f.lifetime_ns DESC LIMIT 20",
        1,
    ),
    (
        "What grows, surely and fast?",
        "SELECT function, bytes, bytes_per_second, why
FROM leaks()
WHERE verdict = 'growing' ORDER BY bytes_per_second_low DESC",
        1,
    ),
    (
        "Which threads free what others allocated?",
        "SELECT a.name AS allocated_by, t.name AS freed_by, count(*) AS blocks, sum(f.size) AS bytes
FROM frees f
JOIN threads a ON a.recording = f.recording AND a.thread = f.alloc_thread
JOIN threads t ON t.recording = f.recording AND t.thread = f.thread
WHERE f.thread <> f.alloc_thread
GROUP BY f.alloc_thread, f.thread ORDER BY bytes DESC",
        1,
    ),
    (
        "How did live and resident memory go?",
        "SELECT t_ns, live_bytes, live_count, rss_bytes, alloc_rate
FROM timeline(50)",
        1,
    ),
    (
        "What did thread 3 leave behind between two marks?",
        "SELECT s.function, count(*) AS blocks, sum(a.size) AS bytes
FROM allocations a JOIN sites() s ON s.recording = a.recording AND s.site = a.site
WHERE a.thread = 3 AND a.died_ns IS NULL
  AND a.born_ns BETWEEN (SELECT min(t_ns) FROM marks WHERE label = 'begin') AND (SELECT max(t_ns) FROM marks WHERE label = 'end')
GROUP BY s.function ORDER BY bytes DESC",
        1,
    ),
    (
        "Which functions hold more in the second recording than in the first?",
        "SELECT function, change_bytes, change_count
FROM diff(1, 2, 'peak')
WHERE change_bytes > 0 LIMIT 20",
        2,
    ),
];

/// The examples.
#[must_use]
pub fn examples() -> Vec<SqlExample> {
    let example = |&(title, query, recordings): &(&str, &str, u32)| SqlExample {
        title: title.into(),
        query: query.into(),
        recordings,
    };
    EXAMPLES.iter().map(example).collect()
}
