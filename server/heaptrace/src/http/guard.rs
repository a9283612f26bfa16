//! Access control: checks on every request, before anything else looks at it.
//!
//! A server on loopback is reachable for every web page in the user's browser. Two tricks matter: a page that sends
//! requests across origins, and a page whose own name is made to resolve to 127.0.0.1 (DNS rebinding), which makes it
//! same-origin in the browser's eyes. The first is stopped by Origin and Sec-Fetch-Site, the second by the Host
//! allow-list: the rebound request still carries the attacker's host name.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::HttpProblem;

/// What is allowed.
#[derive(Debug, Clone)]
pub struct RequestGuard {
    /// Host names that requests may name, lower case, without port.
    hosts: Vec<String>,
    /// Any IP address may be named, too: it needs no DNS, so it cannot be rebound.
    any_address: bool,
    token: Option<Token>,
    /// Cookies are shared between the ports of a host, so the name holds the port.
    cookie: String,
}

/// The secret that requests must carry.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl std::str::FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        if text.len() < 16 {
            return Err("a token needs 16 characters or more, so that it cannot be found by trial".into());
        }
        if text.len() > 256 || !text.chars().all(plain) {
            return Err("a token is made of letters, digits and -._~, at most 256 of them".into());
        }
        Ok(Self(text.to_owned()))
    }
}

impl Token {
    /// The token itself, for the URL that is printed.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Compares in a time that depends on the lengths only.
    fn is(&self, candidate: &[u8]) -> bool {
        let secret = self.0.as_bytes();
        let mut difference = secret.len() ^ candidate.len();
        for (i, byte) in candidate.iter().enumerate() {
            difference |= usize::from(byte ^ secret[i % secret.len()]);
        }
        black_box(difference) == 0
    }
}

impl RequestGuard {
    /// For a server on `address` and `port`; `names` are further host names that it is reached by.
    pub fn new(address: IpAddr, port: u16, names: &[String], token: Option<Token>) -> Self {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        hosts.extend(names.iter().map(|name| name.to_ascii_lowercase()));
        hosts.push(match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        });
        Self { hosts, any_address: !address.is_loopback(), token, cookie: format!("heaptrace_{port}") }
    }

    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), HttpProblem> {
        let host = single(headers, &header::HOST)?
            .ok_or_else(|| HttpProblem::new(StatusCode::FORBIDDEN, "the request names no host"))?;
        self.check_host(host)?;
        if let Some(authority) = uri.authority() {
            self.check_host(authority.as_str())?;
        }
        if let Some(origin) = single(headers, &header::ORIGIN)? {
            let same = ["http://", "https://"]
                .iter()
                .any(|scheme| origin.strip_prefix(scheme).is_some_and(|origin| origin.eq_ignore_ascii_case(host)));
            if !same {
                return Err(HttpProblem::new(
                    StatusCode::FORBIDDEN,
                    format!("a page of {origin:?} may not send requests to the server at {host:?}"),
                ));
            }
        }
        let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let site = value("sec-fetch-site");
        let navigation = value("sec-fetch-mode") == Some(b"navigate") && value("sec-fetch-dest") == Some(b"document");
        let following_a_link = navigation && !is_api(uri);
        if matches!(site, Some(site) if site != b"same-origin" && site != b"none") && !following_a_link {
            return Err(HttpProblem::new(
                StatusCode::FORBIDDEN,
                "pages of other sites may not send requests to this server",
            ));
        }
        let (allowed, only): (&[Method], _) =
            if is_command(uri) { (&[Method::POST], "POST") } else { (&[Method::GET, Method::HEAD], "GET and HEAD") };
        if !allowed.contains(method) {
            return Err(HttpProblem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{method} is not possible here: only {only}"),
            ));
        }
        Ok(())
    }

    fn check_host(&self, host: &str) -> Result<(), HttpProblem> {
        let authority: Option<Authority> = host.parse().ok().filter(|_| !host.contains('@'));
        let name = authority.as_ref().map(|authority| authority.host().to_ascii_lowercase());
        let allowed = name.as_ref().is_some_and(|name| {
            let address = || name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            self.hosts.contains(name) || self.any_address && address().is_ok()
        });
        if allowed {
            return Ok(());
        }
        Err(HttpProblem::new(
            StatusCode::FORBIDDEN,
            format!("this server is not called {host:?}; if it should be, start it with --allow-host"),
        ))
    }

    /// Whether the request carries the token, and whether it does so in the URL.
    fn authorised(&self, uri: &Uri, headers: &HeaderMap) -> Carried {
        let Some(token) = &self.token else { return Carried::InHeader };
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().split_first_chunk::<7>())
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
            .is_some_and(|(_, value)| token.is(value.trim_ascii()));
        let cookie = || {
            let cookies = headers.get_all(header::COOKIE).iter();
            let mut pairs = cookies.flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
            pairs.any(|pair| {
                let value = pair.trim_ascii().strip_prefix(self.cookie.as_bytes());
                value.and_then(|value| value.strip_prefix(b"=")).is_some_and(|value| token.is(value))
            })
        };
        let in_url = || {
            let mut pairs = uri.query().unwrap_or_default().split('&');
            pairs.any(|pair| pair.strip_prefix("token=").is_some_and(|value| token.is(value.as_bytes())))
        };
        if in_url() {
            Carried::InUrl
        } else if bearer || cookie() {
            Carried::InHeader
        } else {
            Carried::Nowhere
        }
    }

    fn set_cookie(&self, response: &mut Response) {
        let Some(token) = &self.token else { return };
        // Lax, so that following a link to the page works; the checks above keep other sites from using it.
        let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Lax", self.cookie, token.0);
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
}

enum Carried {
    Nowhere,
    InHeader,
    InUrl,
}

/// The middleware.
pub async fn guard(State(guard): State<Arc<RequestGuard>>, mut request: Request, next: Next) -> Response {
    if let Err(problem) = guard.check(request.method(), request.uri(), request.headers()) {
        return problem.into_response();
    }
    match guard.authorised(request.uri(), request.headers()) {
        Carried::InHeader => next.run(request).await,
        Carried::Nowhere => {
            let detail =
                "this server requires a token: open the URL that it printed, or send `Authorization: Bearer TOKEN`";
            let mut response = HttpProblem::new(StatusCode::UNAUTHORIZED, detail).into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        // The token leaves the URL at once: it must not stay in the history, in a bookmark or in a referrer.
        Carried::InUrl => {
            let rest = without_token(request.uri());
            let mut response = if is_api(request.uri()) {
                *request.uri_mut() = rest;
                next.run(request).await
            } else {
                let location = HeaderValue::from_str(&rest.to_string()).unwrap_or(HeaderValue::from_static("/"));
                (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
            };
            guard.set_cookie(&mut response);
            response
        }
    }
}

fn is_api(uri: &Uri) -> bool {
    uri.path().starts_with("/api/")
}

/// Whether the route changes what the server does; all others only answer.
fn is_command(uri: &Uri) -> bool {
    is_api(uri) && ["/cancel_indexing", "/start_indexing"].iter().any(|end| uri.path().ends_with(end))
}

fn without_token(uri: &Uri) -> Uri {
    let pairs: Vec<_> = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.starts_with("token=")).collect();
    // A path that begins with two slashes would be read as another host in a Location header.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    let text = if pairs.is_empty() { path } else { format!("{path}?{}", pairs.join("&")) };
    text.parse::<PathAndQuery>().map(Uri::from).unwrap_or_default()
}

fn single<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a str>, HttpProblem> {
    let mut values = headers.get_all(name).iter();
    let bad = || HttpProblem::new(StatusCode::BAD_REQUEST, format!("the header {name} is malformed or repeated"));
    let first = values.next().map(|value| value.to_str().map_err(|_| bad())).transpose()?;
    if values.next().is_some() { Err(bad()) } else { Ok(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn check(guard: &RequestGuard, uri: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let uri: Uri = uri.parse().unwrap();
        match guard.check(&Method::GET, &uri, &map) {
            Err(problem) => problem.status().as_u16(),
            Ok(()) => match guard.authorised(&uri, &map) {
                Carried::Nowhere => 401,
                Carried::InHeader => 200,
                Carried::InUrl => 303,
            },
        }
    }

    #[test]
    fn only_our_own_names_are_answered() {
        let guard = RequestGuard::new(LOOPBACK, 8080, &["Heap.Example".into()], None);
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:9", "[::1]:8080", "heap.example"] {
            assert_eq!(check(&guard, "/", &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a@localhost", "192.0.2.1", ""]
        {
            assert_eq!(check(&guard, "/", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(check(&guard, "/", &[]), 403);
        assert_eq!(check(&guard, "/", &[("host", "localhost"), ("host", "evil.example")]), 400);
        assert_eq!(check(&guard, "http://evil.example/", &[("host", "localhost")]), 403);
    }

    #[test]
    fn a_rebound_page_is_refused_although_it_is_same_origin_to_the_browser() {
        let guard = RequestGuard::new(LOOPBACK, 8080, &[], None);
        let rebound =
            [("host", "evil.example:8080"), ("origin", "http://evil.example:8080"), ("sec-fetch-site", "same-origin")];
        assert_eq!(check(&guard, "/api/v1/recordings", &rebound), 403);
    }

    #[test]
    fn other_origins_are_refused() {
        let guard = RequestGuard::new(LOOPBACK, 8080, &[], None);
        let origin = |origin| check(&guard, "/api/v1/recordings", &[("host", "localhost:8080"), ("origin", origin)]);
        assert_eq!(origin("http://localhost:8080"), 200);
        for other in
            ["http://localhost:3000", "http://evil.example", "null", "file://", "http://localhost:8080.evil.example"]
        {
            assert_eq!(origin(other), 403, "{other}");
        }
        let fetched = |path, site, mode, dest| {
            let headers =
                [("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            check(&guard, path, &headers)
        };
        assert_eq!(fetched("/", "cross-site", "navigate", "document"), 200);
        assert_eq!(fetched("/", "cross-site", "navigate", "iframe"), 403);
        assert_eq!(fetched("/api/v1/recordings", "cross-site", "navigate", "document"), 403);
        assert_eq!(fetched("/api/v1/recordings", "same-site", "no-cors", "image"), 403);
        assert_eq!(fetched("/api/v1/recordings", "none", "navigate", "document"), 200);
    }

    #[test]
    fn commands_are_posted_and_questions_are_not() {
        let guard = RequestGuard::new(LOOPBACK, 8080, &[], None);
        let status = |method: Method, uri: &str, origin: &str| {
            let headers = [(header::HOST, "localhost:8080"), (header::ORIGIN, origin)];
            let headers = headers.map(|(name, value)| (name, value.parse().unwrap())).into_iter().collect();
            guard
                .check(&method, &uri.parse().unwrap(), &headers)
                .map_or_else(|problem| problem.status().as_u16(), |()| 200)
        };
        let own = "http://localhost:8080";
        let (command, question) = ("/api/v1/recordings/r1/cancel_indexing", "/api/v1/recordings/r1");
        assert_eq!(status(Method::POST, command, own), 200);
        assert_eq!(status(Method::GET, command, own), 405);
        assert_eq!(status(Method::POST, question, own), 405);
        assert_eq!(status(Method::POST, "/r/r1/cancel_indexing", own), 405);
        assert_eq!(status(Method::POST, command, "http://evil.example"), 403);
        assert_eq!(status(Method::POST, command, "null"), 403);
    }

    #[test]
    fn a_token_is_wanted_everywhere() {
        let token: Token = "0123456789abcdef".parse().unwrap();
        let guard = RequestGuard::new("0.0.0.0".parse().unwrap(), 8080, &[], Some(token));
        let with = |uri, name, value| check(&guard, uri, &[("host", "192.0.2.7:8080"), (name, value)]);
        assert_eq!(with("/", "accept", "*/*"), 401);
        assert_eq!(with("/api/v1/recordings", "authorization", "Bearer 0123456789abcdef"), 200);
        assert_eq!(with("/api/v1/recordings", "authorization", "Bearer 0123456789abcdeg"), 401);
        assert_eq!(with("/api/v1/recordings", "authorization", "Bearer 0123456789abcdef0123456789abcdef"), 401);
        assert_eq!(with("/", "cookie", "a=b; heaptrace_8080=0123456789abcdef"), 200);
        assert_eq!(with("/", "cookie", "heaptrace_8081=0123456789abcdef"), 401);
        assert_eq!(with("/?token=0123456789abcdef", "accept", "*/*"), 303);
        assert_eq!(with("/?token=", "accept", "*/*"), 401);
    }

    #[test]
    fn the_token_leaves_the_url() {
        for (uri, rest) in [
            ("/?token=x", "/"),
            ("/r1/flame?from=1&token=x&to=2", "/r1/flame?from=1&to=2"),
            ("//evil.example/?token=x", "/evil.example/"),
        ] {
            assert_eq!(without_token(&uri.parse().unwrap()).to_string(), rest);
        }
    }

    #[test]
    fn weak_tokens_are_refused() {
        for text in ["", "short", "with spaces in between", "0123456789abcde;"] {
            assert!(text.parse::<Token>().is_err(), "{text:?}");
        }
    }
}
