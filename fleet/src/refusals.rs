//! Errors of stores, each as one sentence: the errors of the library name every request twice, with its
//! URL and how long it took, and have the reason at the end.

/// The most letters of a service's own words.
const LONGEST: usize = 200;

/// The error in a sentence.
pub fn words(error: object_store::Error) -> anyhow::Error {
    let text = error.to_string();
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    anyhow::Error::msg(refusal(&text).unwrap_or_else(|| innermost.to_string()))
}

/// Status, code and message of an answer, which is XML or JSON or nothing; `None` if the text is of no answer.
fn refusal(text: &str) -> Option<String> {
    let (_, answer) = text.split_once("status code: ")?;
    let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
    let between = |from: &str, to: &str| {
        let (_, rest) = body.split_once(from)?;
        let (inside, _) = rest.split_once(to)?;
        Some(inside.trim().chars().take(LONGEST).collect::<String>()).filter(|inside| !inside.is_empty())
    };
    let code = between("<Code>", "</Code>");
    let message = between("<Message>", "</Message>").or_else(|| between("\"message\":\"", "\""));
    let mut said = status.trim_end_matches(':').to_owned();
    if let Some(code) = code {
        said.push_str(&format!(", {code}"));
    }
    if let Some(message) = message {
        said.push_str(&format!(": {message}"));
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_is_said() {
        let xml = "Error performing PUT http://a/b in 5ms - Server returned non-2xx status code: 403 Forbidden: \
            <?xml version=\"1.0\"?><Error><Code>ExpiredToken</Code><Message>The token has expired</Message></Error>";
        assert_eq!(refusal(xml).as_deref(), Some("403 Forbidden, ExpiredToken: The token has expired"));
        let json = "status code: 400 Bad Request: {\"error\":{\"code\":400,\"message\":\"invalid uploadType\"}}";
        assert_eq!(refusal(json).as_deref(), Some("400 Bad Request: invalid uploadType"));
        assert_eq!(refusal("status code: 403 Forbidden: ").as_deref(), Some("403 Forbidden"));
        assert_eq!(refusal("connection refused"), None);
        let deep = object_store::Error::Generic { store: "S3", source: Box::new(std::io::Error::other("cut")) };
        assert_eq!(words(deep).to_string(), "cut");
    }
}
