//! Names of generated code in perf maps, parsed into function, place and language.
//!
//! ```text
//! LazyCompile:*handle /srv/app.js:12:9      V8: what was compiled, how (~ ^ + *), function, place of the function
//! int D.packs(byte[])                       HotSpot: as the language writes it
//! Ljava/lang/String;::hashCode              the same by agents
//! py::handle:/srv/app.py                    CPython
//! ```
//! What the runtimes make for themselves (stubs, interpreters, handlers of bytecodes) is in no language of the program.

use std::sync::Arc;

use tracehound_index::language::SourceLanguage;
use tracehound_index::program::{CodeKind, PYTHON_TRAMPOLINE};

/// A function of generated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedFunction {
    /// Without what its compiler put around it.
    pub name: Arc<str>,
    /// Where the function begins, if its text says so.
    pub place: Option<GeneratedPlace>,
    /// The program's; `None` for what the runtime made for itself.
    pub language: Option<SourceLanguage>,
    /// The program's function or a library's.
    pub kind: CodeKind,
}

/// Where a function begins in its source. There are no lines of calls in perf maps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GeneratedPlace {
    /// Path, or what stands for one: `node:fs`, `[eval]`.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
}

/// What V8 calls its code for JavaScript functions; a colon follows.
const V8_FUNCTIONS: [&str; 5] = ["JS", "LazyCompile", "Function", "Script", "Eval"];
/// How far V8 has compiled a function: not at all, without and with some optimisation, with all of it.
const V8_TIERS: [char; 4] = ['~', '^', '+', '*'];
/// Those of its compilers that inline functions, of which perf maps say nothing.
const V8_INLINING_TIERS: [char; 2] = ['+', '*'];
/// What V8 calls code of its own.
const V8_OWN: [&str; 5] = ["Builtin", "BytecodeHandler", "Stub", "Handler", "Callback"];
/// Packages that come with Java.
const JAVA_LIBRARY: [&str; 5] = ["java.", "javax.", "jdk.", "sun.", "com.sun."];

impl GeneratedFunction {
    /// Parses a text with a line for each function that may have been at the address: it is not certain which.
    pub fn of_lines(text: &str, in_jvm: bool) -> Self {
        let mut functions: Vec<Self> = Vec::new();
        for function in text.lines().map(|line| Self::parse(line, in_jvm)) {
            // The same function may have been compiled several times.
            if !functions.contains(&function) {
                functions.push(function);
            }
        }
        let [first, others @ ..] = &*functions else { return Self::parse(text, in_jvm) };
        let second = match others {
            [] => return functions.swap_remove(0),
            [second] => Arc::clone(&second.name),
            [_, ..] => format!("one of {} others", others.len()).into(),
        };
        let same = |of: fn(&Self) -> Option<SourceLanguage>| {
            of(first).filter(|_| others.iter().all(|other| of(other) == of(first)))
        };
        let name = format!("{} or {second} (not certain)", first.name).into();
        let is_library = functions.iter().all(|function| function.kind == CodeKind::Library);
        let kind = if is_library { CodeKind::Library } else { CodeKind::Program };
        Self { name, place: None, language: same(|function| function.language), kind }
    }

    /// Whether a text, with a line for each function that may be meant, names code into which functions may be inlined that
    /// it does not name.
    pub fn may_have_inlined(text: &str) -> bool {
        let is_inlining = |line: &str| {
            let function = line.split_once(':').filter(|(tag, _)| V8_FUNCTIONS.contains(tag));
            function.is_some_and(|(_, rest)| rest.starts_with(V8_INLINING_TIERS))
        };
        text.lines().any(is_inlining)
    }

    /// A runtime's own code, by what it calls it.
    pub fn of_runtime(text: Arc<str>) -> Self {
        Self { name: text, place: None, language: None, kind: CodeKind::Library }
    }

    /// A method of Java, by its name.
    pub fn of_method(name: String) -> Self {
        let is_library = JAVA_LIBRARY.iter().any(|package| name.starts_with(package));
        let kind = if is_library { CodeKind::Library } else { CodeKind::of(Some(&name), None, None) };
        Self { name: name.into(), place: None, language: Some(SourceLanguage::Java), kind }
    }

    /// What a text of a perf map says. In a JVM (`in_jvm`) what is no method is the JVM's own.
    pub fn parse(text: &str, in_jvm: bool) -> Self {
        let known = v8(text).or_else(|| java(text, in_jvm)).or_else(|| python(text));
        known.unwrap_or_else(|| {
            let language = SourceLanguage::of(Some(text), None).filter(|_| !in_jvm);
            let kind = if in_jvm { CodeKind::Library } else { CodeKind::of(Some(text), None, None) };
            Self { name: text.into(), place: None, language, kind }
        })
    }
}

fn v8(text: &str) -> Option<GeneratedFunction> {
    let (tag, rest) = text.split_once(':')?;
    if V8_OWN.contains(&tag) {
        return Some(GeneratedFunction::of_runtime(text.into()));
    }
    let language = Some(SourceLanguage::JavaScript);
    if tag == "RegExp" {
        return Some(GeneratedFunction { name: text.into(), place: None, language, kind: CodeKind::Program });
    }
    if !V8_FUNCTIONS.contains(&tag) {
        return None;
    }
    let rest = rest.strip_prefix(V8_TIERS).map_or(rest, |rest| rest.strip_prefix('\'').unwrap_or(rest));
    let (function, place) = function_and_place(rest);
    let name = match (function, tag) {
        ("", "Script") => "(script)",
        ("", "Eval") => "(eval)",
        ("", _) => "(anonymous)",
        (function, _) => function,
    };
    let file = place.as_ref().map(|place| &*place.file);
    // `node:fs` and `node:internal/…` are compiled into node.
    let kind = if file.is_some_and(|file| file.starts_with("node:")) {
        CodeKind::Library
    } else {
        CodeKind::of(Some(name), file, None)
    };
    Some(GeneratedFunction { name: name.into(), place, language, kind })
}

/// Parts `handle /srv/app.js:12:9`. Names and paths may have spaces, see [`path_in`].
fn function_and_place(text: &str) -> (&str, Option<GeneratedPlace>) {
    let (head, first) = number_behind(text);
    let Some(first) = first else {
        return match path_in(text) {
            Some((function, path)) if is_marked(path) => (function, Some(place(path, None, None))),
            _ if is_marked(text) => ("", Some(place(text, None, None))),
            _ => (text.trim(), None),
        };
    };
    let (head, line, column) = match number_behind(head) {
        (head, Some(line)) => (head, line, Some(first)),
        (head, None) => (head, first, None),
    };
    match path_in(head) {
        Some((function, "")) => (function, None),
        Some((function, path)) => (function, Some(place(path, Some(line), column))),
        // A name that ends with a number, or a place without a function.
        None if is_marked(head) => ("", Some(place(head, Some(line), column))),
        None => (text.trim(), None),
    }
}

/// Takes `:12` off the end; numbers that are no line are none.
fn number_behind(text: &str) -> (&str, Option<u32>) {
    let number = text.rsplit_once(':').and_then(|(head, number)| Some((head, number.parse::<u32>().ok()?)));
    match number {
        Some((head, number)) => (head, Some(number)),
        None => (text, None),
    }
}

/// Parts a function and a path: before the first path that [`is_marked`], else at the first space. The name of a function has
/// one behind `get` and `set`, and else hardly ever.
fn path_in(text: &str) -> Option<(&str, &str)> {
    let spaces = || text.match_indices(' ').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let is_whole = |(name, _): &(&str, &str)| !matches!(*name, "get" | "set") || spaces().nth(1).is_none();
    let found = spaces().find(|(_, path)| is_marked(path)).or_else(|| spaces().find(is_whole))?;
    Some((found.0.trim(), found.1.trim()))
}

/// Whether a text begins as paths do that need no look at what is before them: `/srv/…`, `file:///…`, `node:fs`,
/// `[worker eval]`.
fn is_marked(path: &str) -> bool {
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c))
    };
    path.starts_with(['/', '[']) || path.split_once(':').is_some_and(|(start, _)| scheme(start))
}

fn place(path: &str, line: Option<u32>, column: Option<u32>) -> GeneratedPlace {
    let file = path.strip_prefix("file://").map_or_else(|| path.to_owned(), without_percent);
    let line = line.filter(|&line| line > 0);
    GeneratedPlace { file: file.into(), line, column: column.filter(|_| line.is_some()) }
}

/// The path of a URL: `%20` is a space.
fn without_percent(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digit = |at: usize| behind.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn java(text: &str, in_jvm: bool) -> Option<GeneratedFunction> {
    let name = by_agent(text).or_else(|| as_written(text, in_jvm)).or_else(|| {
        // What has dots and nothing else about it is a method only where there is Java.
        (in_jvm && is_dotted(text)).then(|| text.to_owned())
    })?;
    Some(GeneratedFunction::of_method(name))
}

/// `Ljava/lang/String;::hashCode`
fn by_agent(text: &str) -> Option<String> {
    let (class, method) = text.strip_prefix('L')?.split_once(";::")?;
    let class = class.replace('/', ".");
    (is_dotted(&class) || is_word(&class)).then_some(())?;
    (!method.is_empty()).then(|| format!("{class}.{method}"))
}

/// `int java.lang.String.hashCode()`, without the type in front.
fn as_written(text: &str, in_jvm: bool) -> Option<String> {
    let known = SourceLanguage::of(Some(text), None) == Some(SourceLanguage::Java);
    let (head, parameters) = text.split_once('(').filter(|_| text.ends_with(')'))?;
    let (_, method) = head.rsplit_once(' ')?;
    (known || in_jvm && method.contains('.')).then(|| format!("{method}({parameters}"))
}

fn is_dotted(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_word)
}

fn is_word(text: &str) -> bool {
    let starts = |c: char| c.is_alphabetic() || "_$<".contains(c);
    text.starts_with(starts) && text.chars().all(|c| c.is_alphanumeric() || "_$<>+-/".contains(c))
}

/// `py::handle:/srv/app.py`
fn python(text: &str) -> Option<GeneratedFunction> {
    let (name, file) = text.strip_prefix(PYTHON_TRAMPOLINE)?.split_once(':')?;
    if name.is_empty() || file.is_empty() {
        return None;
    }
    let place = GeneratedPlace { file: file.into(), line: None, column: None };
    let kind = CodeKind::of(Some(name), Some(file), None);
    Some(GeneratedFunction { name: name.into(), place: Some(place), language: Some(SourceLanguage::Python), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str, in_jvm: bool) -> (String, Option<String>, Option<&'static str>) {
        let function = GeneratedFunction::parse(text, in_jvm);
        let number = |number: Option<u32>| number.map(|number| format!(":{number}")).unwrap_or_default();
        let place = function.place.map(|at| format!("{}{}{}", at.file, number(at.line), number(at.column)));
        (function.name.to_string(), place, function.language.map(SourceLanguage::name))
    }

    #[test]
    fn javascript_has_function_and_place() {
        for (text, name, place) in [
            ("LazyCompile:*handle /srv/app.js:12:9", "handle", Some("/srv/app.js:12:9")),
            ("JS:^handler z.js:4:17", "handler", Some("z.js:4:17")),
            ("JS:+'hot /srv/app.js:1:2", "hot", Some("/srv/app.js:1:2")),
            ("LazyCompile:*second a.js:3", "second", Some("a.js:3")),
            ("JS:~ node:internal/fs:7:1", "(anonymous)", Some("node:internal/fs:7:1")),
            ("Script:~ /srv/app.js:1:1", "(script)", Some("/srv/app.js:1:1")),
            ("Eval:~ evalmachine.<anonymous>:1:1", "(eval)", Some("evalmachine.<anonymous>:1:1")),
            ("Function:~get size /srv/my app/a.js:3:4", "get size", Some("/srv/my app/a.js:3:4")),
            ("JS:*get size a.js:3:4", "get size", Some("a.js:3:4")),
            ("JS:*main file:///srv/a%20b.mjs:3:4", "main", Some("/srv/a b.mjs:3:4")),
            ("JS:*main [eval]:3:4", "main", Some("[eval]:3:4")),
            ("JS:*main [worker eval]:3:4", "main", Some("[worker eval]:3:4")),
            ("Script:~ [worker eval]:1:1", "(script)", Some("[worker eval]:1:1")),
            ("JS:*run [worker eval]-wrapper:1:1", "run", Some("[worker eval]-wrapper:1:1")),
            ("JS:*inVm my vm file.js:3:4", "inVm", Some("my vm file.js:3:4")),
            ("JS:*get size my file.js:3:4", "get size", Some("my file.js:3:4")),
            ("JS:*get a.js:3:4", "get", Some("a.js:3:4")),
            ("JS:~main :3:4", "main", None),
            ("Script:~/srv/app.js", "(script)", Some("/srv/app.js")),
            ("JS:*alone", "alone", None),
            ("JS:*", "(anonymous)", None),
            ("JS:*a /srv/a.js:0:0", "a", Some("/srv/a.js")),
            ("JS:*a /srv/a.js:99999999999:3", "a", Some("/srv/a.js:99999999999:3")),
            ("RegExp:a b:[0-9]:3", "RegExp:a b:[0-9]:3", None),
        ] {
            let expected = (name.to_owned(), place.map(str::to_owned), Some("javascript"));
            assert_eq!(parts(text, false), expected, "{text}");
        }
    }

    #[test]
    fn a_function_that_is_not_certain_says_so() {
        let of = |text| {
            let function = GeneratedFunction::of_lines(text, false);
            (function.name.to_string(), function.place.is_some(), function.language.map(SourceLanguage::name))
        };
        assert_eq!(of("JS:~a /x.js:1:2\nJS:*a /x.js:1:2"), ("a".into(), true, Some("javascript")));
        let two = "JS:~a /x.js:1:2\nJS:~b /x.js:3:4";
        assert_eq!(of(two), ("a or b (not certain)".into(), false, Some("javascript")));
        let mixed = "JS:~a /x.js:1:2\nBuiltin:B\nJS:~c /x.js:3:4";
        assert_eq!(of(mixed), ("a or one of 2 others (not certain)".into(), false, None));
    }

    #[test]
    fn what_a_runtime_makes_for_itself_is_in_no_language() {
        for text in ["Builtin:ArrayMap", "BytecodeHandler:LdaZero", "Stub:CEntry", "Handler:a /b.js:1:2"] {
            let function = GeneratedFunction::parse(text, false);
            assert_eq!((&*function.name, function.language, function.kind), (text, None, CodeKind::Library));
        }
        for text in [
            "Interpreter",
            "StubRoutines (1)",
            "I2C/C2I adapters",
            "_new_array_Java",
            "vtable stub",
            "flush.icache (x)",
        ] {
            let function = GeneratedFunction::parse(text, true);
            assert_eq!((&*function.name, function.language, function.kind), (text, None, CodeKind::Library));
        }
    }

    #[test]
    fn java_has_its_methods() {
        for (text, name, in_jvm) in [
            ("byte[] D.deflate(byte[], int)", "D.deflate(byte[], int)", false),
            ("void java.util.zip.Inflater.<init>(boolean)", "java.util.zip.Inflater.<init>(boolean)", false),
            ("void D$$Lambda$14/0x0000000800c03000.run()", "D$$Lambda$14/0x0000000800c03000.run()", false),
            ("void app.Kotlin.take-impl(int)", "app.Kotlin.take-impl(int)", false),
            ("Ljava/lang/String;::hashCode", "java.lang.String.hashCode", false),
            ("LD;::run", "D.run", false),
            ("java.lang.String.hashCode", "java.lang.String.hashCode", true),
        ] {
            assert_eq!(parts(text, in_jvm), (name.to_owned(), None, Some("java")), "{text}");
        }
        // Where there is no Java, dots alone say nothing.
        assert_eq!(parts("game.update", false), ("game.update".into(), None, None));
        let kind = |text| GeneratedFunction::parse(text, true).kind;
        assert_eq!(kind("int java.lang.String.hashCode()"), CodeKind::Library);
        assert_eq!(kind("int app.Main.run()"), CodeKind::Program);
    }

    #[test]
    fn pythons_trampolines_have_function_and_file() {
        assert_eq!(
            parts("py::C.handle:/srv/app.py", false),
            ("C.handle".into(), Some("/srv/app.py".into()), Some("python"))
        );
        assert_eq!(parts("py::", false).0, "py::");
    }
}
