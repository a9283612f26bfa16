//! Memory by request: a layer for `tracing` that tells Tracehound's recorder which request each thread works on.
//!
//! ```no_run
//! use tracing_subscriber::layer::SubscriberExt;
//! use tracing_subscriber::util::SubscriberInitExt;
//!
//! tracing_subscriber::registry().with(tracehound_tracing::RequestLayer::of_spans("request", &["endpoint"])).init();
//! ```
//! A span that is chosen is a request context, and so is all that happens in it: in spans below it, and in tasks that are
//! instrumented with it, on whatever thread they run. `heaptrace contexts`, and `--context` of every command, tell
//! requests apart. Without the recorder a span costs a look at a static.

mod recorder;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use recorder::RecorderFunctions;

thread_local! {
    /// The contexts that the entered spans of this thread were entered from.
    static OUTER: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Id of a span's request context.
struct SpanContext(u64);

/// See the crate's text.
pub struct RequestLayer {
    recorder: Option<RecorderFunctions>,
    chooses: Box<dyn Fn(&Metadata<'_>) -> bool + Send + Sync>,
    fields: Vec<String>,
    /// Ids of the names that were given; an id is its position plus one.
    ids: Mutex<HashMap<String, u64>>,
}

impl RequestLayer {
    /// Spans with this name are request contexts, those with equal values of these fields the same one.
    #[must_use]
    pub fn of_spans(name: &'static str, fields: &[&str]) -> Self {
        Self::of_chosen(move |metadata| metadata.name() == name, fields)
    }

    /// Spans for which `chooses` returns true are request contexts; those with the same name and values of these
    /// fields are the same one.
    #[must_use]
    pub fn of_chosen(chooses: impl Fn(&Metadata<'_>) -> bool + Send + Sync + 'static, fields: &[&str]) -> Self {
        Self {
            recorder: RecorderFunctions::find(),
            chooses: Box::new(chooses),
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
            ids: Mutex::default(),
        }
    }

    /// The id of a chosen span's context, which is named when it is met first.
    fn id_of(&self, recorder: RecorderFunctions, attributes: &Attributes<'_>) -> u64 {
        let mut name = ContextText { text: attributes.metadata().name().to_owned(), fields: &self.fields };
        attributes.record(&mut name);
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let next = ids.len() as u64 + 1;
        let id = *ids.entry(name.text.clone()).or_insert(next);
        if id == next {
            recorder.name(id, &name.text);
        }
        id
    }
}

/// The name of a context: the span's, and the values of the fields that count.
struct ContextText<'a> {
    text: String,
    fields: &'a [String],
}

impl ContextText<'_> {
    fn counts(&self, field: &Field) -> bool {
        self.fields.iter().any(|name| name == field.name())
    }
}

impl Visit for ContextText<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.counts(field) {
            self.text.push(' ');
            self.text.push_str(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.counts(field) {
            // Writing to a text cannot fail.
            let _ = write!(self.text, " {value:?}");
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RequestLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(recorder) = self.recorder else { return };
        let Some(span) = context.span(id) else { return };
        let own = (self.chooses)(attributes.metadata()).then(|| self.id_of(recorder, attributes));
        let inherited = || span.parent().and_then(|parent| parent.extensions().get::<SpanContext>().map(|of| of.0));
        if let Some(id) = own.or_else(inherited) {
            span.extensions_mut().insert(SpanContext(id));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let (Some(recorder), Some(of_span)) = (self.recorder, context_of(id, &context)) else { return };
        OUTER.with_borrow_mut(|outer| outer.push(recorder.context()));
        recorder.set(of_span);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let (Some(recorder), Some(_)) = (self.recorder, context_of(id, &context)) else { return };
        recorder.set(OUTER.with_borrow_mut(|outer| outer.pop()).unwrap_or(0));
    }
}

fn context_of<S: Subscriber + for<'a> LookupSpan<'a>>(id: &Id, context: &Context<'_, S>) -> Option<u64> {
    context.span(id)?.extensions().get::<SpanContext>().map(|of| of.0)
}
