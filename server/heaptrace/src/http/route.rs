//! Routes that ask one recording: path, groups of parameters and answer, declared once for the handler and for the
//! OpenAPI document. A route that needs more than these, such as a second recording, is written out.

/// Declares such a route: `|ask, NAME: GROUP, ...|` are what is asked and up to six groups of parameters; the block
/// returns what is given out as JSON. `answers stored` stands for an answer that is kept for the next run of the server.
macro_rules! recording_route {
    (
        $(#[$meta:meta])*
        $name:ident at $path:tt, tag $tag:tt, answers stored $answer:ident:
        |$ask:ident $(, $values:ident: $group:ident)*| $body:block
    ) => {
        $crate::http::route::recording_route! {
            $(#[$meta])*
            $name at $path, tag $tag, by answer_stored, answers $answer: |$ask $(, $values: $group)*| $body
        }
    };
    (
        $(#[$meta:meta])*
        $name:ident at $path:tt, tag $tag:tt, answers $answer:ident:
        |$ask:ident $(, $values:ident: $group:ident)*| $body:block
    ) => {
        $crate::http::route::recording_route! {
            $(#[$meta])*
            $name at $path, tag $tag, by answer, answers $answer: |$ask $(, $values: $group)*| $body
        }
    };
    (
        $(#[$meta:meta])*
        $name:ident at $path:tt, tag $tag:tt, by $method:ident, answers $answer:ident:
        |$ask:ident $(, $values:ident: $group:ident)*| $body:block
    ) => {
        $(#[$meta])*
        #[utoipa::path(
            get,
            path = $path,
            tag = $tag,
            params($crate::http::routes::RecordingId $(, $group)*),
            responses((status = 200, body = $answer), $crate::http::routes::Problems)
        )]
        pub async fn $name(
            asked: $crate::http::answer::RecordingRequest,
        ) -> $crate::http::answer::Result<axum::response::Response> {
            asked.$method(|$ask, ($($values,)*): ($($group,)*)| $body).await
        }
    };
}
pub(crate) use recording_route;
